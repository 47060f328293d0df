"""Two processes with sharded parameters release what one process does, and each makes the noise of its own shard."""

import json

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset

from tacit.clipping import AdaptiveClip
from tacit.errors import TrainingMisuse
from tacit.noise import SeededStream, Stream
from tacit.training import make_private
from tacit.training.ranks import stream_of
from tacit.training.sharded import WholeModel
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model
from tests.training.distributed_script import train
from tests.training.test_distributed import finished, start

NO_NOISE = {"noise_multiplier": 0.0, "unsafe_no_noise": True, "batches": 7}


def check_equal(folder, ranks, **arguments):
    found = finished(folder, ranks, **arguments, sharded=True)
    alone, private = train(**arguments)
    for each in found:
        assert each["weights"] == found[0]["weights"]
        assert each["steps"] == private.ledger.steps
    assert torch.allclose(torch.tensor(found[0]["weights"]), torch.tensor(alone), rtol=1e-6, atol=1e-6)
    return found


@pytest.mark.slow
def test_two_processes_with_shards_release_what_one_does_also_on_uneven_and_empty_batches(tmp_path):
    check_equal(tmp_path, 2, batch_size=1.5, steps=10, max_physical_batch_size=2, **NO_NOISE)


@pytest.mark.slow
def test_four_processes_with_shards_of_which_some_are_empty_release_what_one_does(tmp_path):
    # Of 6 rows the last rank holds none; of 2 biases the last two.
    check_equal(tmp_path, 4, batch_size=10.0, steps=6, **NO_NOISE)


@pytest.mark.slow
def test_every_coordinate_gets_the_noise_of_the_plan_once(tmp_path):
    """Clipped to nothing, a step moves the weights by its noise alone: lr noise_multiplier clip_norm / divisor."""
    arguments = {"batch_size": 2.0, "clip_norm": 1e-3, "noise_multiplier": 2000.0, "steps": 60}
    found = finished(tmp_path, 2, **arguments, sharded=True)
    weights = torch.tensor([flat(small_model(0)).tolist(), *found[0]["weights"]])
    noise = weights.diff(dim=0) / 0.5
    first, second = _columns_of_ranks(noise)
    for part in (first, second):
        # 60 x 22 values: the standard deviation of their mean square is 2 / sqrt(2 x 1320) of it: 4 of them.
        assert part.square().mean().item() == pytest.approx(1.0, abs=4 * (2 / part.numel()) ** 0.5)
    # 22 x 22 correlations over 60 steps, of standard deviation 1 / sqrt(60): none is near 1, as one seed would make it.
    assert torch.corrcoef(noise.T).fill_diagonal_(0).abs().max() < 0.75
    assert found[0]["standing"] == "claimed"  # the stream is seeded


def _columns_of_ranks(noise):
    """Columns of the first and of the second rank: half of the rows of every parameter."""
    model, halves = small_model(), ([], [])
    start_at = 0
    for value in model.parameters():
        half = value.numel() // 2
        halves[0].append(noise[:, start_at : start_at + half])
        halves[1].append(noise[:, start_at + half : start_at + 2 * half])
        start_at += value.numel()
    return torch.cat(halves[0], 1), torch.cat(halves[1], 1)


@pytest.mark.slow
def test_a_step_that_was_charged_before_a_rank_was_lost_stays_counted_and_moves_no_shard(tmp_path):
    lost = 3
    processes = start(tmp_path, 2, {"seed": None, "steps": 6, "lost": lost, "sharded": True})
    assert [process.wait(240) for process in processes] == [0, 1]
    found = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert found["steps"] == lost
    assert len(found["weights"]) == lost - 1
    assert found["now"] == found["weights"][-1]
    assert found["standing"] == "conditional"
    assert not found["missing"]


@pytest.mark.slow
def test_an_adaptive_clip_follows_the_counts_of_all_ranks(tmp_path):
    arguments = {"batch_size": 20.0, "steps": 6, "clip_norm": None, "batches": 7, "noise_multiplier": 1e-4}
    clip = AdaptiveClip(0.1)
    found = finished(tmp_path, 2, **arguments, clipping=json.dumps(clip.spec()), sharded=True)
    assert found[0]["weights"] == found[1]["weights"]


@pytest.mark.slow
def test_a_resumed_run_with_shards_counts_what_ran(tmp_path):
    file = str(tmp_path / "run.safetensors")
    arguments = {"seed": None, "steps": 6, "file": file, "sharded": True}
    processes = start(tmp_path, 2, arguments | {"lost": 3})
    assert [process.wait(240) for process in processes] == [0, 1]
    found = finished(tmp_path, 2, **arguments, resume=True)
    assert found[0]["steps"] >= 3 + 6


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def parts(model, **named):
    data = DataLoader(TensorDataset(*blobs()), batch_size=20)
    return make_private(model, plain_sgd(model), data, clip_norm=1.0, noise_multiplier=1.0, steps=2, **named)


@pytest.mark.usefixtures("group")
def test_a_sharded_model_is_trained_evaluated_stored_and_guarded_in_one_process():
    model = fully_shard(small_model())
    private = parts(model, distributed=True)
    whole = private.model.session.run.whole
    (x, y), inputs = next(iter(private.loader)), blobs()[0]
    before = {name: value.full_tensor().clone() for name, value in model.state_dict().items()}
    cross_entropy(private.model(x), y).backward()
    private.optimizer.step()
    assert all(value.untyped_storage().size() == 0 for value in whole.module.parameters())
    assert any(not torch.equal(value.full_tensor(), before[name]) for name, value in model.state_dict().items())
    private.model.eval()
    with torch.no_grad():
        outputs = private.model(inputs)
    expected = small_model()
    expected.load_state_dict({name: value.full_tensor() for name, value in private.model.state_dict().items()})
    assert torch.equal(outputs, expected(inputs))
    private.model.train()
    with torch.no_grad():
        model[0].weight.to_local().add_(1.0)
    x, y = next(iter(private.loader))
    with pytest.raises(TrainingMisuse, match=r"another change of '0.weight'"):
        private.model(x)


@pytest.mark.usefixtures("group")
def test_a_gathered_weight_that_is_written_into_is_found():
    private = parts(fully_shard(small_model()), distributed=True)
    x, y = next(iter(private.loader))
    losses = cross_entropy(private.model(x), y)
    private.model.module[2].bias.data.add_(1.0)
    losses.backward()
    with pytest.raises(TrainingMisuse, match=r"another change of '2.bias'"):
        private.optimizer.step()


@pytest.mark.usefixtures("group")
def test_the_copy_keeps_hooks_buffers_and_shared_parameters_and_drops_the_wrapper():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.register_buffer("scale", torch.ones(1))
    seen = []
    model[0].register_forward_hook(lambda module, given, made: seen.append(len(made)))
    expected = model(torch.ones(3, 4))
    whole = WholeModel(fully_shard(model), 0, 1)
    whole.gather()
    assert torch.equal(whole.module(torch.ones(3, 4)), expected)
    assert seen == [3, 3]
    assert whole.module[1].weight is whole.module[0].weight
    assert whole.module.scale is model.scale
    assert type(whole.module) is nn.Sequential
    assert type(model).__name__ == "FSDPSequential"


@pytest.mark.usefixtures("group")
def test_what_cannot_be_sharded_privately_is_refused():
    with pytest.raises(TrainingMisuse, match=r"or after fully_shard\(module\)"):
        parts(fully_shard(small_model()))
    mixed = fully_shard(small_model(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    with pytest.raises(TrainingMisuse, match=r"without a mixed precision policy; got one\. Use torch.autocast"):
        parts(mixed, distributed=True)
    partly = small_model()
    fully_shard(partly[0])
    with pytest.raises(TrainingMisuse, match=r"'2\.weight' must be sharded; got a whole one"):
        parts(partly, distributed=True)
    with pytest.raises(TrainingMisuse, match=r"must be trained with independent noise.*got correlated noise"):
        parts(fully_shard(small_model()), distributed=True, noise="banded:2", sampling="cyclic_poisson")


def test_streams_of_ranks_are_told_apart_and_others_refused():
    drawn = [stream_of(SeededStream(3), rank).bits(4).tolist() for rank in range(3)]
    assert drawn[0] == SeededStream(3).bits(4).tolist()
    assert len({tuple(each) for each in drawn}) == 3

    class Fixed(Stream):
        secure = False

        def bits(self, count):
            raise NotImplementedError

    with pytest.raises(TrainingMisuse, match="must be a SecureStream or a SeededStream with sharded parameters; got F"):
        stream_of(Fixed(), 1)
