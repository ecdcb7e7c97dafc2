"""`jointprobe import` of an encoder: weights that others saved become a folder of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hardware.errors import InputError
from probe.terminal import Terminal

# encoders.checkpoint_files.SUFFIXES, written here too: importing that loads torch, and recordings need none
SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")


def holds_checkpoint(source: Path) -> bool:
    """Whether a path is a file of weights, or a folder in which some lie."""
    if source.is_dir():
        return any(one.suffix in SUFFIXES for one in source.iterdir())
    return source.suffix in SUFFIXES


def refuse_options(options: Mapping[str, object], what: str) -> None:
    """InputError for an option that was given and says nothing about `what` is imported."""
    for name, value in options.items():
        if value:
            raise InputError(name, f"says nothing about {what}", "leave it out")


def import_encoder(
    terminal: Terminal,
    source: Path,
    to: Path,
    view: str | None,
    trust_pickle: bool,
    actions_of: Path | None,
) -> None:
    """Import a LeWM and say what it is, where it is from and what is not known of it."""
    if view is None:
        raise InputError(
            "--view", "is missing: which camera is the encoder to see?", "for example --view front"
        )
    from encoders.lewm_checkpoints import RELEASED, import_lewm
    from hardware.recording import Recording

    trained_on = None if actions_of is None else Recording.open(actions_of)
    encoder, checkpoint = import_lewm(source, to, [view], trust_pickle=trust_pickle, actions_of=trained_on)
    sizes, file = checkpoint.architecture, checkpoint.file
    parameters = sum(one.numel() for one in encoder.network.parameters())
    released = RELEASED.get(file.sha256)
    where = f", under {checkpoint.prefix.rstrip('.')}" if checkpoint.prefix else ""
    lines = [
        f"  from {file.path} ({file.form}, names of {checkpoint.family}{where})",
        f"  SHA-256 {file.sha256}" + (f", as released: {released}" if released else ""),
        *(f"  {note}" for note in checkpoint.notes),
        "  it predicts nothing: give --actions-of, the recording that it was trained on"
        if actions_of is None
        else f"  it predicts: actions standardised as those of {actions_of}",
        *(f"  not used: {name} ({count} tensors)" for name, count in checkpoint.unused.items()),
        f"  fingerprint {encoder.fingerprint}",
    ]
    terminal.say(
        f": LeWM of {parameters:,} parameters, images of {sizes.image_size}, latents of {sizes.latent_dim}, "
        f"view {view}",
        head=str(to),
    )
    for line in lines:
        terminal.say(line)
    terminal.result(
        {
            "encoder": str(to),
            "kind": encoder.kind,
            "views": [view],
            "parameters": parameters,
            "fingerprint": encoder.fingerprint,
            "source": checkpoint.source(),
        }
    )
