"""The paper's CNN, its views, its seeds and its preprocessing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from encoders.cnn import Cnn, CnnArchitecture, CnnEncoder, CnnPreprocessing, Normaliser
from hardware.errors import InputError


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _frames(count: int, views: int, side: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, views, side, side, 3), dtype=np.uint8)


def _encoder(views: int = 2, latent_dim: int = 3, seed: int = 0) -> CnnEncoder:
    mean, std = [(0.4, 0.5, 0.6)] * views, [(0.2, 0.25, 0.3)] * views
    preprocessing = CnnPreprocessing(image_size=(64, 64), mean=mean, std=std)
    network = Cnn(views, latent_dim, generator=_generator(seed))
    names = [f"v{number}" for number in range(views)]
    return CnnEncoder(network, names, CnnArchitecture(latent_dim=latent_dim), preprocessing)


def test_one_view_and_two_dimensions_have_the_published_number_of_parameters() -> None:
    assert _parameters(Cnn(1, 2, generator=_generator())) == 757_922


def test_without_batch_norm_the_rest_is_the_same() -> None:
    """Batch norm draws nothing, so weights are the same; it is 2 (480 + 256) parameters less."""
    own, without = Cnn(1, 2, generator=_generator(1)), Cnn(1, 2, batch_norm=False, generator=_generator(1))
    assert _parameters(without) == 757_922 - 2 * (32 + 64 + 128 + 256 + 256)
    convolutions = (
        [m.weight for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))] for net in (own, without)
    )
    assert all(torch.equal(one, other) for one, other in zip(*convolutions, strict=True))
    assert without([torch.zeros(1, 3, 64, 64)]).shape == (1, 2)  # a batch of one, in training mode


def test_trunks_are_own_or_shared_and_the_head_reads_all_views() -> None:
    trunk = _parameters(Cnn(1, 2, generator=_generator()).trunks)
    own, shared = Cnn(3, 2, generator=_generator()), Cnn(3, 2, "shared", generator=_generator())
    assert _parameters(own.trunks) == 3 * trunk and _parameters(shared.trunks) == trunk
    assert _parameters(own) - 3 * trunk == _parameters(shared) - trunk == 256 * 768 + 256 + 512 + 514
    images = [torch.randn(4, 3, 64, 64, generator=_generator(view)) for view in range(3)]
    for network in (own, shared):
        network.eval()
        before = network(images)
        assert before.shape == (4, 2)
        for view in range(3):
            changed = list(images)
            changed[view] = changed[view] + 1
            assert not torch.allclose(network(changed), before)


def test_it_is_the_published_stack_of_layers() -> None:
    """Against the same network spelled out with torch's own layers and AvgPool(4)."""
    network = Cnn(1, 2, generator=_generator(3)).eval()
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.BatchNorm2d(after), nn.GELU()]
    layers += [nn.AvgPool2d(4), nn.Flatten()]
    layers += [nn.Linear(256, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 2)]
    plain = nn.Sequential(*layers).eval()
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values())))
    image = torch.randn(5, 3, 64, 64, generator=_generator(4))
    torch.testing.assert_close(network([image]), plain(image))


def test_initial_weights_come_from_the_generator_alone_and_follow_torchs_rule() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one, same, other = (Cnn(2, 4, generator=_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
        assert torch.isfinite(value).all(), name
    assert not torch.equal(one.head[0].weight, other.head[0].weight)
    torch_conv, ours = nn.Conv2d(128, 256, 4), one.trunks[0][9]
    assert ours.weight.abs().max().item() == pytest.approx(torch_conv.weight.abs().max().item(), rel=1e-3)
    assert ours.weight.std().item() == pytest.approx(torch_conv.weight.std().item(), rel=1e-2)
    assert ours.bias.abs().max().item() <= (128 * 16) ** -0.5


def test_preprocessing_is_scale_then_mean_then_std_of_each_view() -> None:
    mean, std = [(0.1, 0.2, 0.3), (0.4, 0.5, 0.6)], [(0.2, 0.3, 0.4), (0.5, 0.6, 0.7)]
    preprocessing = CnnPreprocessing(image_size=(8, 8), mean=mean, std=std)
    frames = _frames(3, 2, 8)
    found = Normaliser(preprocessing, "cpu")(torch.from_numpy(frames))
    for view in range(2):
        expected = (frames[:, view] / 255 - np.array(mean[view])) / np.array(std[view])
        np.testing.assert_allclose(found[view].permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
        assert found[view].is_contiguous(memory_format=torch.channels_last)


def test_encode_is_independent_of_the_batch_and_resizes_larger_frames() -> None:
    encoder = _encoder()
    frames = _frames(5, 2)
    latents = encoder.encode(frames)
    assert latents.shape == (5, 3) and latents.dtype == np.float32
    one_by_one = np.concatenate([encoder.encode(frames[row : row + 1]) for row in range(5)])
    np.testing.assert_allclose(latents, one_by_one, atol=1e-5)
    large = frames.repeat(2, axis=2).repeat(2, axis=3)  # the mean of each 2x2 block is the pixel itself
    np.testing.assert_allclose(encoder.encode(large), latents, atol=1e-6)
    assert encoder.encode(frames[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    "frames",
    [_frames(2, 1), _frames(2, 2).astype(np.float32), _frames(2, 2)[..., :2], _frames(2, 2)[0]],
    ids=["one view", "float", "two channels", "no batch axis"],
)
def test_frames_of_another_form_are_refused(frames: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"expected uint8 \(B, 2, H, W, 3\)"):
        _encoder().encode(frames)


def test_fingerprint_names_weights_views_and_preprocessing() -> None:
    encoder = _encoder()
    assert encoder.fingerprint == _encoder().fingerprint and len(encoder.fingerprint) == 64
    changed = [_encoder(seed=1), _encoder(latent_dim=4), _encoder()]
    changed[2].views = ("v1", "v0")
    weight = _encoder()
    with torch.no_grad():
        value = weight.network.head[3].bias[0]
        value.copy_(torch.nextafter(value, torch.tensor(torch.inf)))  # one bit of one weight
    brighter = _encoder()
    brighter.preprocessing = {**brighter.preprocessing, "mean": [[0.4, 0.5, 0.6], [0.4, 0.5, 0.61]]}
    prints = {one.fingerprint for one in (encoder, *changed, weight, brighter)}
    assert len(prints) == 6
    assert encoder.describe()["width"] == 3 and encoder.describe()["fingerprint"] == encoder.fingerprint


def test_memory_format_does_not_change_the_fingerprint() -> None:
    encoder = _encoder()
    contiguous = _encoder()
    contiguous.network.to(memory_format=torch.contiguous_format)
    assert contiguous.fingerprint == encoder.fingerprint
