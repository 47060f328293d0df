"""Recipes: settings by public shape, features saved with the model, and presets that stay what papers say."""

import numpy as np
import pytest
import torch
from PIL import Image

import tacit
from tacit.data import from_arrays
from tacit.data.image_folder import image_folder, images_in
from tacit.data.published import _SOURCES, Source, source
from tacit.data.words import COLUMNS, word_codes
from tacit.errors import InvalidInput
from tacit.features import Scattering2d, base, drawings
from tacit.runs import Config, audit_run, config_from_table, read_config, recipe_config, resume, train
from tacit.runs import builders as run_features
from tacit.runs.config import trained_as
from tacit.runs.held_out import public_test
from tacit.runs.methods.gradient import Gradient
from tacit.training import AverageModel, fit


@pytest.fixture(autouse=True)
def small_images(tmp_path, monkeypatch):
    """A registered data set of 300 drawings with few features, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("_DIMENSIONS", "_COLOUR_DIMENSIONS"):
        monkeypatch.setattr(run_features, name, dict.fromkeys(("scattering", "patches"), 20))
    for name in ("_DRAWINGS", "_COLOUR_DRAWINGS"):
        monkeypatch.setattr(run_features, name, dict.fromkeys(("scattering", "patches"), (60, 1e-3)))
    monkeypatch.setattr(run_features, "_PATCHES", 8)
    monkeypatch.setattr(run_features, "_COLOUR_PATCHES", 8)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    stripes = np.tile(np.arange(8) // 2 % 2, (400, 1, 8, 1)).astype(np.float32)
    stripes[labels == 1] = stripes[labels == 1].swapaxes(2, 3)
    images = np.clip(stripes + rng.normal(0, 0.3, stripes.shape), 0, 1)

    def read(folder):
        return from_arrays(images, y_train=labels, classes=[0, 1], bounds=(0, 1), name="few_images")

    known = Source("few_images", "drawings", (320, 80), (1, 8, 8), ("0", "1"), "none", read)
    monkeypatch.setitem(_SOURCES, "few_images", known)


def settings(**further):
    given = {"dataset": "few_images", "features": "scattering", "zero_start": True, "average": 0.9, "epochs": 4.0}
    given |= {"batch_size": 64, "epsilon": 8.0, "delta": 1e-4, "clip_norm": 0.1, "learning_rate": 2.0}
    return Config(**given | {"nonprivate_learning_rate": 0.002, "unsafe_seed": 1} | further)


def test_an_epsilon_alone_takes_the_best_recipe_and_training_flags_the_paper():
    best = recipe_config("mnist", {"epsilon": 3.0})
    assert (best.features, best.model, best.average) == ("scattering", "linear", 0.95)
    for overrides in ({"epochs": 3.0, "epsilon": 3.0}, {"clip": {"type": "adaptive"}, "epsilon": 3.0}, {}):
        assert recipe_config("mnist", overrides) == read_config("mnist", overrides)
    assert recipe_config("mnist", {"epsilon": 3.0}, "paper") == read_config("mnist", {"epsilon": 3.0})
    assert recipe_config("mnist", {"epsilon": 3.0, "epochs": 3.0}, "best").epochs == 3.0


@pytest.mark.parametrize("name", ["adult", "bank_marketing"])
def test_a_known_table_takes_the_method_that_a_rule_chooses(name):
    best = recipe_config(name, {"epsilon": 1.0})
    assert (best.dataset, best.method, best.delta) == (name, "auto", 1e-6)
    assert recipe_config(name, {"epsilon": 1.0, "delta": 1e-5}).delta == 1e-5
    if name == "adult":
        assert recipe_config(name, {"epsilon": 1.0}, "paper") == read_config(name, {"epsilon": 1.0})
        assert recipe_config(name, {"epsilon": 1.0, "epochs": 3.0}) == read_config(
            name, {"epsilon": 1.0, "epochs": 3.0}
        )


@pytest.mark.parametrize("name", ["cifar10", "kmnist", "bank_marketing"])
def test_known_data_without_a_preset_ask_for_epsilon_and_take_further_settings(name):
    with pytest.raises(InvalidInput, match=f"epsilon must be given for {name}"):
        recipe_config(name, {})
    assert recipe_config(name, {"epsilon": 3.0, "epochs": 5.0}).epochs == 5.0


@pytest.mark.parametrize(("name", "overrides", "recipe"), [("har", {"epsilon": 1.0}, "best"), ("mnist", {}, "best")])
def test_no_recipe_is_a_sentence(name, overrides, recipe):
    with pytest.raises(InvalidInput, match="recipe must be"):
        recipe_config(name, overrides, recipe)


def test_a_run_on_features_says_so_is_loaded_and_attacked(tmp_path):
    found = train(settings(features="scattering+patches", unsafe_seed=None), out=tmp_path / "run")
    said = [each for each in found.card.ledger.assumptions if each.startswith("Taken as public: 81 fixed channels")]
    assert len(said) == 1
    assert str(found.card.ledger.standing) != "claimed"
    assert found.card.metrics["test"] > 0.75
    base.clear()  # A matrix that is computed anew may have other signs: the one of the run counts.
    data = source("few_images").read(None)
    model = tacit.load(tmp_path / "run")
    assert np.mean(model.predict(data.x_test) == data.y_test.astype(str)) == pytest.approx(found.card.metrics["test"])
    assert len(audit_run(tmp_path / "run", attacks=["loss_threshold"]).results) == 1


def test_a_run_on_features_is_resumed_with_weights_and_mean(tmp_path, monkeypatch):
    whole = train(settings(), out=tmp_path / "whole")

    def stopped(self, job):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Gradient, "nonprivate_baseline", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(settings(), out=tmp_path / "cut")
    base.clear()
    again = resume(tmp_path / "cut", unsafe_seed=1)
    assert again.card.metrics["test"] == whole.card.metrics["test"]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]


def test_the_released_mean_is_that_of_the_weights_of_all_steps():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(3, 1, bias=False)
    seen, average = [], AverageModel(model, 0.5)

    class Watch(AverageModel):
        def on_step(self, taken, planned):
            seen.append(model.weight.detach().clone())
            average.on_step(taken, planned)

        def on_end(self):
            average.on_end()

    fit(
        model, x, x[:, :1], loss=lambda out, y: ((out - y) ** 2).sum(1), callbacks=[Watch(model, 0.5)],
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=1.0,
        noise_multiplier=1.0, batch_size=50, steps=5,
    )  # fmt: skip
    mean = seen[0]
    for t, weights in enumerate(seen[1:], start=2):
        keep = min(0.5, (1 + t) / (10 + t))
        mean = keep * mean + (1 - keep) * weights
    torch.testing.assert_close(model.weight.detach(), mean)


def test_an_average_leaves_a_run_proven():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(3, 2)
    result = fit(
        model, x, (x[:, 0] > 0).long(), loss=lambda out, y: torch.nn.functional.cross_entropy(out, y, reduction="none"),
        callbacks=[AverageModel(model, 0.9)], optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=1.0, noise_multiplier=1.0, batch_size=50, steps=5,
    )  # fmt: skip
    assert str(result.ledger.standing) == "proven"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"features": "wavelets"}, "features must be one of"),
        ({"features": "words"}, "dataset must be one of codes of words"),
        ({"dataset": "breast_cancer", "batch_size": 32}, "features must be none for 'breast_cancer'"),
        ({"average": 1.5}, "average must be"),
        ({"average": 0.9, "method": "vi"}, "method must be gradient with average"),
    ],
)
def test_settings_that_do_not_fit_are_sentences(tmp_path, given, said):
    with pytest.raises(InvalidInput, match=said):
        train(settings(**given), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_on_words_takes_texts(tmp_path, monkeypatch):
    texts = ["a fine film" if each % 2 else "a dull play" for each in range(200)]
    given = {"y_train": [each % 2 for each in range(200)], "classes": [0, 1], "name": "texts", "codes": True}
    read = lambda folder: from_arrays(word_codes(texts), bounds=(0, 2 * COLUMNS), **given)  # noqa: E731
    known = Source("texts", "texts", (160, 40), (1024,), ("0", "1"), "none", read)
    monkeypatch.setitem(_SOURCES, "texts", known)
    table = trained_as("words", 3.0) | {"dataset": "texts", "epsilon": 8.0, "delta": 1e-4, "batch_size": 40}
    found = train(config_from_table(table), out=tmp_path / "run")
    assert found.card.metrics["test"] == 1.0
    assert tacit.load(tmp_path / "run").predict(["what a fine film", "such a dull play"]).tolist() == ["1", "0"]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("down", "right"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for each in range(60):
            stripes = np.tile(np.arange(16) // 4 % 2, (16, 1)) * 200 + rng.integers(0, 40, (16, 16))
            picture = Image.fromarray((stripes if name == "right" else stripes.T).astype(np.uint8))
            picture.save(tmp_path / "pictures" / name / f"{each}.png")
    return tmp_path / "pictures"


def test_a_folder_of_images_is_trained_on(tmp_path, folder):
    config = recipe_config(str(folder), {"epsilon": 8.0, "image_size": 8, "test_records": "public"})
    assert (config.batch_size, config.features, config.image_channels) == (24, "mirrored_scattering+patches", 3)
    found = train(config, out=tmp_path / "run")
    assert found.card.metrics["test"] > 0.8
    private = recipe_config(str(folder), {"epsilon": 8.0, "image_size": 8, "image_channels": 1})
    assert private.features == "scattering"
    assert not public_test(private)


def test_faults_of_a_folder_are_sentences_without_file_names(tmp_path, folder):
    (folder / "down" / "John Smith.png").write_bytes(b"no picture")
    with pytest.raises(InvalidInput, match=r"file 61 of class .down. by name"):
        image_folder(folder)
    (folder / "down" / "John Smith.png").unlink()
    (folder / "empty").mkdir()
    with pytest.raises(InvalidInput, match="class 'empty' must be a folder with images"):
        image_folder(folder)
    with pytest.raises(InvalidInput, match="at least two classes"):
        image_folder(folder / "down")
    with pytest.raises(InvalidInput, match="epsilon must be given"):
        recipe_config(str(folder), {})


def test_train_and_test_folders_are_the_parts(tmp_path, folder):
    root = tmp_path / "parts"
    root.mkdir()
    folder.rename(root / "train")
    for name in ("down", "right"):
        (root / "test" / name).mkdir(parents=True)
        (root / "train" / name / "3.png").rename(root / "test" / name / "3.png")
    data = image_folder(root, size=16, channels=1)
    assert (data.x_train.shape, data.x_test.shape, data.classes) == (
        (118, 1, 16, 16),
        (2, 1, 16, 16),
        ("down", "right"),
    )
    assert images_in(root) == 118
    (root / "test" / "left").mkdir()
    with pytest.raises(InvalidInput, match="the same classes as DIR/train"):
        image_folder(root)


@pytest.mark.parametrize(
    ("names", "labels", "classes"),
    [(("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"), 1, 10), (("train.bin", "test.bin"), 2, 100)],
)
def test_the_binary_form_of_cifar_is_read(tmp_path, names, labels, classes):
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8) for name in names}
    for name, rows in pixels.items():
        label = np.tile(np.arange(12, dtype=np.uint8)[:, None] % 10, labels)
        (tmp_path / name).write_bytes(np.concatenate([label, rows.reshape(12, -1)], axis=1).tobytes())
    data = image_folder(tmp_path)
    assert images_in(tmp_path) == len(data.x_train) == 12 * (len(names) - 1)
    assert data.classes == tuple(str(each) for each in range(classes))
    assert data.y_test.tolist() == [each % 10 for each in range(12)]
    np.testing.assert_allclose(data.x_test, pixels[names[-1]] / 255, atol=1e-6)
    assert image_folder(tmp_path, size=16, channels=1).x_train.shape[1:] == (1, 16, 16)
    meta = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
    (tmp_path / meta).write_text("\n".join(f"kind_{each}" for each in range(classes)) + "\n\n")
    assert image_folder(tmp_path).classes[3] == "kind_3"


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "records of 3073"), (bytes(3072), "records"), (b"\x0a" + bytes(3072), "below 10")]
)
def test_faults_of_binary_files_are_sentences(tmp_path, content, said):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073))
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        image_folder(tmp_path)


def test_folders_with_hostile_features_are_refused(tmp_path):
    import json

    train(settings(), out=tmp_path / "run")
    path = tmp_path / "run" / "preprocessing.json"
    for spec in (
        {"kind": "Module"},
        {"kind": "Scattering2d", "shape": [1, 9, 9]},
        {"kind": "Beside"},
        [1],
        {"kind": []},
    ):
        table = json.loads(path.read_text()) | {"made_by": spec}
        path.write_text(json.dumps(table))
        with pytest.raises(InvalidInput):
            tacit.load(tmp_path / "run")


def test_features_of_the_recipes_know_no_name_of_a_data_set():
    for features in ("scattering", "patches"):
        config = settings(features=features)
        one = run_features.features_of(config, source("few_images").read(None))
        other = run_features.features_of(config, from_arrays(drawings(4, (1, 8, 8)), y_train=[0, 1, 0, 1], name="b", bounds=(0, 1), classes=[0, 1]))  # fmt: skip  # noqa: E501
        assert one.key() == other.key()
    assert isinstance(run_features.features_of(settings(), source("few_images").read(None)).features, Scattering2d)
