"""Small real LeRobot sets for tests: tables, encoded videos and pictures, laid out as LeRobot does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NAMES = [
    f"{name}.pos"
    for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
]
WIDTH, HEIGHT, FPS = 64, 48, 30
V21_DATA = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V21_VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
V30_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
V30_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


def joint_states(rows: int, seed: int) -> np.ndarray:
    """Degrees (n, 6) that could be an arm's, the last column 0..100; float32 as LeRobot stores them."""
    rng = np.random.default_rng(seed)
    phase = np.linspace(0, 3, rows)[:, None] + rng.uniform(0, 6, 6)
    states = 40 * np.sin(phase)
    states[:, 5] = 50 + 45 * np.sin(phase[:, 5])
    return states.astype(np.float32).astype(np.float64)


def encode(
    path: Path, frames: int, seed: int, codec: str = "mpeg4", options: dict[str, str] | None = None
) -> None:
    """A video of `frames` pictures, each unlike the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    ground = rng.integers(0, 255, (HEIGHT // 8, WIDTH // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=FPS, options=options or {"g": "6"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(frames):
            picture = np.roll(ground, 3 * number, axis=1)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)


def concatenate(parts: Sequence[Path], path: Path) -> None:
    """One mp4 of several, by copying packets, as LeRobot v3.0 does when it saves an episode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    offset = 0
    with av.open(str(path), "w") as target:
        copy: Any = None
        for part in parts:
            with av.open(str(part)) as source:
                stream = source.streams.video[0]
                if copy is None:
                    copy = target.add_stream_from_template(stream, opaque=True)
                end = 0
                for packet in [packet for packet in source.demux(stream) if packet.size]:
                    end = max(end, packet.pts + packet.duration)
                    packet.pts, packet.dts = packet.pts + offset, packet.dts + offset
                    packet.stream = copy
                    target.mux(packet)
                offset += end


def decoded(path: Path) -> list[np.ndarray]:
    """Every frame of a video file, RGB, straight from the source."""
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


def table(states: np.ndarray, episode: int, first: int, actions: np.ndarray | None = None) -> pa.Table:
    """The rows of one episode with LeRobot's columns."""
    rows = len(states)
    actions = states if actions is None else actions

    def lists(values: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), values.shape[1])

    return pa.table(
        {
            "observation.state": lists(states),
            "action": lists(actions),
            "timestamp": pa.array((np.arange(rows) / FPS).astype(np.float32)),
            "frame_index": pa.array(np.arange(rows)),
            "episode_index": pa.array(np.full(rows, episode)),
            "index": pa.array(np.arange(rows) + first),
            "task_index": pa.array(np.zeros(rows, np.int64)),
        }
    )


def info_of(
    version: str, lengths: Sequence[int], views: Sequence[str], names: Sequence[str] = NAMES
) -> dict[str, Any]:
    """What meta/info.json says."""
    vector = {"dtype": "float32", "shape": [len(names)], "names": list(names)}
    video = {
        "dtype": "video",
        "shape": [HEIGHT, WIDTH, 3],
        "names": ["height", "width", "channels"],
        "info": {"video.fps": FPS, "video.codec": "mp4v", "video.is_depth_map": False, "has_audio": False},
    }
    return {
        "codebase_version": version,
        "robot_type": "so101_follower",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": V21_DATA if version == "v2.1" else V30_DATA,
        "video_path": V21_VIDEO if version == "v2.1" else V30_VIDEO,
        "features": {
            "observation.state": vector,
            "action": vector,
            **{f"observation.images.{view}": video for view in views},
        },
    }


def write_json(path: Path, data: Any) -> None:
    """Write JSON, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_v21(
    folder: Path,
    lengths: Sequence[int],
    *,
    views: Sequence[str] = ("front",),
    frames: dict[int, int] | None = None,
    states: dict[int, np.ndarray] | None = None,
    codec: str = "mpeg4",
    names: Sequence[str] = NAMES,
) -> Path:
    """A v2.1 set; `frames` overrides how many frames an episode's videos have, `states` its joint values."""
    write_json(folder / "meta" / "info.json", info_of("v2.1", lengths, views, names))
    lines = [json.dumps({"episode_index": e, "tasks": ["x"], "length": n}) for e, n in enumerate(lengths)]
    (folder / "meta" / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "data" / "chunk-000").mkdir(parents=True)
    for episode, length in enumerate(lengths):
        values = (states or {}).get(episode, joint_states(length, episode))
        path = folder / "data" / "chunk-000" / f"episode_{episode:06d}.parquet"
        pq.write_table(table(values, episode, sum(lengths[:episode])), path)
        for number, view in enumerate(views):
            mp4 = (
                folder / "videos" / "chunk-000" / f"observation.images.{view}" / f"episode_{episode:06d}.mp4"
            )
            encode(mp4, (frames or {}).get(episode, length), 100 * number + episode, codec)
    return folder


def write_v30(
    folder: Path,
    lengths: Sequence[int],
    *,
    views: Sequence[str] = ("front",),
    files: Sequence[Sequence[int]] | None = None,
    frames: dict[int, int] | None = None,
    from_timestamps: dict[int, float] | None = None,
    codec: str = "mpeg4",
    options: dict[str, str] | None = None,
) -> Path:
    """A v3.0 set; `files` says which episodes share an mp4 (all by default).

    `frames` overrides how many frames an episode has in the mp4, and from_timestamp follows the frames
    that are there, as LeRobot's does; `from_timestamps` overrides that.
    """
    files = files or [range(len(lengths))]
    write_json(folder / "meta" / "info.json", info_of("v3.0", lengths, views))
    parts = [table(joint_states(n, e), e, sum(lengths[:e])) for e, n in enumerate(lengths)]
    (folder / "data" / "chunk-000").mkdir(parents=True)
    with pq.ParquetWriter(folder / "data" / "chunk-000" / "file-000.parquet", parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    place: dict[int, tuple[int, float, float]] = {}
    for number, group in enumerate(files):
        seconds = 0.0
        for episode in group:
            count = (frames or {}).get(episode, lengths[episode])
            start = (from_timestamps or {}).get(episode, seconds)
            seconds += count / FPS
            place[episode] = (number, start, seconds)
        for view_number, view in enumerate(views):
            clips = []
            for episode in group:
                clip = folder / "clips" / view / f"{episode}.mp4"
                count = (frames or {}).get(episode, lengths[episode])
                encode(clip, count, 100 * view_number + episode, codec, options)
                clips.append(clip)
            mp4 = folder / "videos" / f"observation.images.{view}" / "chunk-000" / f"file-{number:03d}.mp4"
            concatenate(clips, mp4)
    rows = []
    for episode, length in enumerate(lengths):
        number, start, stop = place[episode]
        row = {
            "episode_index": episode,
            "tasks": ["x"],
            "length": length,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "dataset_from_index": sum(lengths[:episode]),
            "dataset_to_index": sum(lengths[: episode + 1]),
        }
        for view in views:
            key = f"videos/observation.images.{view}"
            row |= {
                f"{key}/chunk_index": 0,
                f"{key}/file_index": number,
                f"{key}/from_timestamp": start,
                f"{key}/to_timestamp": stop,
            }
        rows.append(row)
    write_episode_list(folder, rows)
    return folder


def store_pictures(
    folder: Path, key: str, pictures: dict[int, list[bytes | None]], row_group: int | None = None
) -> Path:
    """Give a v2.1 or v3.0 set a feature of dtype `image`: encoded bytes in a struct in the tables, as LeRobot
    (Hugging Face datasets) stores them. `row_group` is the number of rows a group; all by default.
    """
    info = json.loads((folder / "meta" / "info.json").read_text())
    info["features"][key] = {
        "dtype": "image",
        "shape": [HEIGHT, WIDTH, 3],
        "names": ["height", "width", "channels"],
    }
    write_json(folder / "meta" / "info.json", info)
    for path in sorted((folder / "data").rglob("*.parquet")):
        rows = pq.read_table(path)
        queues = {episode: iter(mine) for episode, mine in pictures.items()}
        found = [next(queues[episode]) for episode in rows["episode_index"].to_pylist()]
        column = pa.array(
            [{"bytes": data, "path": f"frame-{number:06d}.png"} for number, data in enumerate(found)],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        )
        pq.write_table(rows.append_column(key, column), path, row_group_size=row_group)
    return folder


def picture(seed: int, number: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """RGB uint8 (height, width, 3): blocks of chance that move with `number`."""
    rng = np.random.default_rng(seed)
    ground = rng.integers(0, 255, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    return np.roll(ground, 3 * number, axis=1)


def encoded(image: np.ndarray, suffix: str) -> bytes:
    """The bytes of an RGB (or grey) image as ".jpg" or ".png"."""
    return cv2.imencode(suffix, image[..., ::-1] if image.ndim == 3 else image)[1].tobytes()


def write_episode_list(folder: Path, rows: list[dict[str, Any]]) -> None:
    """meta/episodes of a v3.0 set."""
    path = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def read_episode_list(folder: Path) -> list[dict[str, Any]]:
    """The rows that `write_episode_list` wrote."""
    return pq.read_table(folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
