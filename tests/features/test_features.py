"""Public features: formulas against direct computation, one record at a time, caches that cannot lie."""

import errno
import json
import math
import socket

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import nn

from tacit.erm import DPLogisticRegression
from tacit.errors import InvalidInput, MixesRecords, PrivacyWarning
from tacit.features import (
    Beside,
    Frozen,
    HashedText,
    PatchDictionary,
    Scattering2d,
    SyntheticWhitening,
    base,
    computed,
    drawings,
)
from tacit.standing import Standing
from tacit.training import save_model
from tacit.verification import check_recordwise


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def every():
    shape = (1, 8, 8)
    small = SyntheticWhitening(Scattering2d(shape, 4), dimensions=12, images=40)
    return [Scattering2d(shape, 4), PatchDictionary(shape, 6), small, Beside([Scattering2d(shape, 2), small])]


def wavelet(size, scale, angle, slant, wraps=2):
    """A Morlet wavelet in space, written down again from its formula."""
    sigma, xi = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    found, bells = np.zeros((size, size), complex), np.zeros((size, size))
    for y in range(size):
        for x in range(size):
            for a in range(-wraps, wraps + 1):
                for b in range(-wraps, wraps + 1):
                    v, u = y + a * size, x + b * size
                    along = u * math.cos(angle) + v * math.sin(angle)
                    across = -u * math.sin(angle) + v * math.cos(angle)
                    bell = math.exp(-(along**2 + slant**2 * across**2) / 2 / sigma**2)
                    bell *= slant / (2 * math.pi * sigma**2)
                    bells[y, x] += bell
                    found[y, x] += bell * np.exp(1j * xi * along)
    return found - found.sum() / bells.sum() * bells


def convolved(image, kernel):
    """Circular convolution by a sum over shifts, no Fourier transform."""
    total = np.zeros(image.shape, complex)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            total += kernel[y, x] * np.roll(image, (y, x), (0, 1))
    return total


def averaged(image, sigma, step):
    size = len(image)
    places = np.arange(size)
    bell = sum(np.exp(-((places + w * size) ** 2) / 2 / sigma**2) for w in range(-3, 4)) / (
        sigma * (2 * math.pi) ** 0.5
    )
    return convolved(image, np.outer(bell, bell)).real[step:-step:step, step:-step:step]


def direct(image, count):
    """Scattering of one grey image in float64 by direct convolutions, in the order of the channels."""
    x = np.pad(image.astype(float), 4, mode="reflect")
    angles = [math.pi * each / count for each in range(count)]
    fine = [wavelet(len(x), 0, angle, 4 / count) for angle in angles]
    coarse = [wavelet(len(x), 1, angle, 4 / count) for angle in angles]
    first = [abs(convolved(x, psi)) for psi in fine]
    other = [abs(convolved(x, psi))[::2, ::2] for psi in coarse]
    second = [abs(convolved(u, psi))[::2, ::2] for u in first for psi in coarse]
    whole = [averaged(u, 1.6, 4) for u in (x, *first)]
    return np.stack(whole + [averaged(u, 0.8, 2) for u in (*other, *second)])


def test_scattering_equals_direct_convolution_in_float64():
    image = drawings(1, (1, 12, 12), seed=3)[0, 0]
    ours = Scattering2d((1, 12, 12), 4, normalise=False).of(image[None, None])[0]
    np.testing.assert_allclose(ours, direct(image, 4).ravel(), atol=2e-6)


def test_wavelets_have_mean_zero_and_scattering_of_a_constant_is_the_constant():
    ours = Scattering2d((1, 8, 8), 4, normalise=False).of(np.full((1, 64), 0.7, np.float32)).reshape(25, -1)
    np.testing.assert_allclose(ours[0], 0.7, atol=1e-5)
    np.testing.assert_allclose(ours[1:], 0.0, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 30, 28), (1, 64, 64), (3, 80, 100)])
def test_scattering_takes_images_of_every_declared_size(shape):
    features = Scattering2d(shape, 2)
    assert features.of(np.zeros((2, *shape), np.float32)).shape == (2, features.width)


@pytest.mark.parametrize("features", every(), ids=lambda each: type(each).__name__)
def test_features_treat_records_apart(features):
    features.prepare()
    rows = torch.rand(4, 64, generator=torch.Generator().manual_seed(0))
    check_recordwise(features, rows)
    alone = np.concatenate([features.of(rows[each : each + 1]) for each in range(4)])
    np.testing.assert_allclose(features.of(rows), alone, atol=1e-4)


@pytest.mark.parametrize("features", [*every(), HashedText(8)], ids=lambda each: type(each).__name__)
def test_features_are_transformers_that_name_their_declaration(features):
    texts = isinstance(features, HashedText)
    rows = ["one", "two words"] if texts else np.random.default_rng(0).uniform(size=(2, 64)).astype(np.float32)
    same = clone(features)
    found = same.fit_transform(rows)
    assert found.shape == (2, features.width)
    assert found.dtype == np.float32
    assert len(same.get_feature_names_out()) == features.width
    assert features.sentence.startswith("Taken as public: ")
    assert features.key()[:12] in features.sentence
    assert clone(features).key() == features.key()


def test_a_pipeline_on_public_features_stays_proven():
    rng = np.random.default_rng(0)
    images = drawings(300, (1, 8, 8))
    answers = rng.integers(0, 2, 300)
    model = make_pipeline(
        Scattering2d((1, 8, 8), 2), DPLogisticRegression(epsilon=1.0, classes=[0, 1], norm_bound=50.0, delta=1e-5)
    )
    model.fit(images.reshape(300, -1), answers)
    ledger = model[-1].ledger_
    assert model[0].sentence in ledger.assumptions
    assert model[-1].guarantee_.standing is Standing.PROVEN


def test_fewer_drawings_than_features_are_whitened_alike():
    """The covariance of what 40 drawings give after whitening by 12 dimensions is that of its formula."""
    features = SyntheticWhitening(Scattering2d((1, 8, 8), 4), dimensions=12, images=40, floor=1e-3)
    features.prepare()
    rows = features.features.of(drawings(40, (1, 8, 8), 0)).astype(np.float64)
    assert rows.shape[1] > 40
    rows -= rows.mean(axis=0)
    values = np.linalg.eigvalsh(rows.T @ rows / 40)[::-1][:12]
    found = rows @ features.matrix.numpy().T.astype(np.float64)
    np.testing.assert_allclose(found.T @ found / 40, np.diag(values / (values + 1e-3 * values[0])), atol=1e-4)


def test_scattering_of_a_mirror_image_may_have_the_features_of_the_image():
    images = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    apart, features = Scattering2d((3, 12, 12), 4), Scattering2d((3, 12, 12), 4, mirror=True)
    torch.testing.assert_close(features(images), features(images.flip(3)))
    torch.testing.assert_close(features(images), (apart(images) + apart(images.flip(3))) / 2)
    assert features.key() != apart.key()
    assert "mirror" in features.sentence


def test_patches_of_a_mirror_image_have_the_features_of_the_image():
    images = drawings(3, (1, 12, 12), seed=1)
    features = PatchDictionary((1, 12, 12), 8)
    np.testing.assert_allclose(features.of(images), features.of(images[..., ::-1].copy()), atol=0.02)
    apart = PatchDictionary((1, 12, 12), 8, mirror=False)
    assert abs(apart.of(images) - apart.of(images[..., ::-1].copy())).max() > 0.05


def test_patches_equal_a_loop_over_windows():
    image = drawings(1, (1, 9, 9), seed=4)
    features = PatchDictionary((1, 9, 9), 5, mirror=False)
    features.prepare()
    weight, shift = features.weight.double().numpy(), features.shift.double().numpy()
    like = np.zeros((4, 4, 10))
    for y in range(4):
        for x in range(4):
            patch = image[0, 0, y : y + 6, x : x + 6].astype(float).ravel()
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + 10 / 255**2)
            like[y, x] = weight @ patch + shift
    means = []
    for part in (like, -like):
        part = np.maximum(part - 0.25, 0)
        means.append([[part[a : a + 2, b : b + 2].mean((0, 1)) for b in (0, 2)] for a in (0, 2)])
    expected = np.sqrt(np.moveaxis(np.array(means), 3, 1).ravel())
    np.testing.assert_allclose(features.of(image)[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_whitening_makes_drawings_uncorrelated():
    plain = Scattering2d((1, 8, 8), 2)
    features = SyntheticWhitening(plain, dimensions=10, images=400, floor=1e-9)
    features.prepare()
    rows = (torch.from_numpy(plain.of(drawings(400, (1, 8, 8)))) - features.mean) @ features.matrix.T
    np.testing.assert_allclose(np.cov(rows.numpy().T, bias=True), np.eye(10), atol=0.02)


def test_whitening_is_read_from_the_cache_and_computed_anew_where_that_was_edited():
    first = SyntheticWhitening(Scattering2d((1, 8, 8), 2), dimensions=5, images=30)
    first.prepare()
    (kept,) = base.folder().glob("*.npy")
    assert kept.stat().st_mode & 0o077 == 0
    content = bytearray(kept.read_bytes())
    content[-3] ^= 1
    kept.write_bytes(content)
    second = clone(first)
    second.prepare()
    assert torch.equal(first.matrix.abs(), second.matrix.abs())


def test_a_saved_model_holds_the_matrix():
    first = SyntheticWhitening(Scattering2d((1, 8, 8), 2), dimensions=5, images=30)
    first.prepare()
    second = clone(first)
    second.load_state_dict(first.state_dict())
    base.clear()
    rows = torch.rand(2, 64)
    assert torch.equal(first(rows), second(rows))
    assert not list(base.folder().iterdir())


def test_features_of_large_data_are_computed_once_and_deleted_on_request(monkeypatch):
    features, rows = Scattering2d((1, 8, 8), 2), drawings(20, (1, 8, 8))
    found = computed(features, rows)
    np.testing.assert_array_equal(found, features.of(rows))
    with monkeypatch.context() as patched:
        patched.setattr(Scattering2d, "forward", None)
        assert np.array_equal(computed(features, rows), found)
    assert base.clear() > 0


def test_an_edited_or_cut_cache_is_computed_anew():
    features, rows = Scattering2d((1, 8, 8), 2), drawings(20, (1, 8, 8))
    expected = np.array(computed(features, rows))
    (path,) = base.folder().glob("*.npy")
    whole = path.read_bytes()
    for content in (whole[:-100], whole[:-4] + b"\0\0\0\0", b""):
        path.write_bytes(content)
        assert np.array_equal(computed(features, rows), expected)
    path.with_suffix(".json").write_text(json.dumps({"sha256": "0"}))
    assert np.array_equal(computed(features, rows), expected)


def test_a_full_disk_leaves_features_in_memory(monkeypatch):
    features, rows = Scattering2d((1, 8, 8), 2), drawings(20, (1, 8, 8))
    monkeypatch.setattr(base.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.warns(PrivacyWarning, match="no room"):
        assert np.array_equal(computed(features, rows), features.of(rows))
    assert not list(base.folder().glob("*.npy*"))
    assert not list(base.folder().glob("*.part"))


def test_texts_become_signs_of_norm_one_that_follow_from_each_text_alone():
    features = HashedText(64)
    texts = ["A film, a FILM that isn't bad", "", "bad film isn't", "the of"]
    rows = features.of(texts)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1, 0], atol=1e-6)
    np.testing.assert_array_equal(rows[0], rows[2])  # "that", "a" are stop words; order and repeats count for nothing
    np.testing.assert_array_equal(features.of(features.codes(texts)), rows)
    np.testing.assert_array_equal(features.of(texts[:1]), rows[:1])


def test_a_disk_that_fills_on_the_way_leaves_nothing_half_written(monkeypatch):
    features, rows = Scattering2d((1, 8, 8), 2), drawings(20, (1, 8, 8))

    def full(*given, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.warns(PrivacyWarning, match="No space left"):
        assert np.array_equal(computed(features, rows), features.of(rows))
    monkeypatch.setattr(base.Lock, "take", full)
    with pytest.warns(PrivacyWarning, match="No space left"):
        assert np.array_equal(computed(features, rows), features.of(rows))
    assert not list(base.folder().iterdir())


def test_pixels_that_are_not_finite_leave_no_file():
    rows = drawings(600, (1, 8, 8))
    rows[-1, 0, 0, 0] = np.nan
    with pytest.raises(InvalidInput, match=r"X must be finite.* Fill them"):
        computed(Scattering2d((1, 8, 8), 2), rows)
    assert not list(base.folder().iterdir())


def test_a_cache_that_cannot_be_made_names_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for act in (base.clear, SyntheticWhitening(Scattering2d((1, 8, 8), 2), dimensions=5, images=30).prepare):
        with pytest.raises(InvalidInput, match=r"cache of features must be .* XDG_CACHE_HOME"):
            act()


@pytest.mark.parametrize("texts", [["fine", None], ["fine", 3.5], [b"bytes"]])
def test_text_that_is_no_string_is_refused_by_its_row(texts):
    with pytest.raises(InvalidInput, match=r"text \d must be a string"):
        HashedText(8).of(texts)


def test_frozen_features_are_declared_by_the_digest_of_their_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU())
    features = Frozen(net, torch.zeros(1, 4), "my net")
    assert features.of(np.ones((2, 4))).shape == (2, 3)
    assert "the weights of my net" in features.sentence
    before = features.key()
    with torch.no_grad():
        net[0].weight[0, 0] += 1
    assert features.key() != before
    assert not any(value.requires_grad for value in features.parameters())


def test_frozen_weights_of_a_torch_file_are_those_of_the_file(tmp_path):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    save_model(net, tmp_path / "model.safetensors")
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    other = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    features = Frozen.from_folder(tmp_path, torch.zeros(1, 4), other)
    np.testing.assert_array_equal(features.of(rows), net(torch.from_numpy(rows)).detach().numpy())
    assert f"the weights of {tmp_path.name}" in features.sentence
    with pytest.raises(InvalidInput, match="path must hold the parameters of this model"):
        Frozen.from_folder(tmp_path, torch.zeros(1, 4), nn.Linear(4, 2))


def test_frozen_weights_of_a_hugging_face_folder_need_no_network(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=20, max_position_embeddings=16, **sizes))
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(socket, "socket", None)
    tokens = torch.randint(0, 20, (3, 6))
    features = Frozen.from_folder(tmp_path, tokens[:1])
    expected = model.eval()(tokens).pooler_output.detach().numpy()
    np.testing.assert_allclose(features.of(tokens.numpy()), expected, atol=1e-6)
    check_recordwise(features, tokens)
    (tmp_path / "config.json").write_text('{"model_type": "none such"}')
    with pytest.raises(InvalidInput, match="folder must be a model that transformers can make"):
        Frozen.from_folder(tmp_path, tokens[:1])
    (tmp_path / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"a local folder with model\.safetensors and config\.json"):
        Frozen.from_folder(tmp_path, tokens[:1])


def test_frozen_networks_that_mix_records_are_refused():
    class Mixed(nn.Module):
        def forward(self, x):
            return x - x.mean(dim=0)

    with pytest.raises(MixesRecords):
        Frozen(Mixed(), torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Scattering2d((2, 28, 28)), "shape must be"),
        (lambda: Scattering2d((1, 28)), "shape must be"),
        (lambda: Scattering2d((1, 4, 28)), "shape must be"),
        (lambda: Scattering2d((1, 28, 28)).of(np.zeros((2, 1, 32, 32))), "X must be images of shape"),
        (lambda: Scattering2d((1, 8, 8)).of(np.full((1, 64), np.nan)), "X must be finite"),
        (lambda: Scattering2d((1, 8, 8)).of(np.array([["a"] * 64])), "X must be an array of finite numbers"),
        (lambda: PatchDictionary((1, 8, 8), 4).of(np.full((1, 64), np.inf)), "X must be finite"),
        (lambda: PatchDictionary((1, 8, 8), 4).of(np.zeros((2, 3, 8, 8))), "X must be images of shape"),
        (lambda: every()[3].of(np.zeros(64)), "X must be images of shape"),
        (lambda: Scattering2d((1, 8, 8)).of(None), "X must be an array of images"),
        (lambda: Scattering2d((1, 8, 8)).of(np.ones((2, 64)) * 1j), "X must be an array of finite numbers"),
        (lambda: HashedText(8).of(None), "X must be a list of texts"),
        (lambda: HashedText(8).of("one"), "X must be a list of texts"),
        (lambda: HashedText(8).of(np.array([["a", "b"]])), "X must be one column of texts"),
        (lambda: SyntheticWhitening(HashedText()), "features must be Scattering2d"),
        (lambda: SyntheticWhitening(Scattering2d((1, 8, 8)), dimensions=10**6), "dimensions must be"),
        (lambda: Beside([]), "parts must be"),
    ],
)
def test_bad_input_is_a_sentence(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()
