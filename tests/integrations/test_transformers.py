"""The private Trainer trains, keeps its ledger with its checkpoints, and a resumed run never counts fewer steps."""

import math
import shutil

import pytest
import torch
from torch import nn

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.noise import SeededStream
from tacit.training import make_private
from tests.architectures.zoo import define_torchvision_operators
from tests.training.cases import flat

transformers = pytest.importorskip("transformers")
define_torchvision_operators()

PRIVACY = {"clip_norm": 1.0, "noise_multiplier": 1.0}


def tiny(seed=0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    return transformers.LlamaForCausalLM(config)


def records(count=40):
    tokens = torch.randint(0, 20, (count, 6), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in tokens]


def trainer_of(folder, model=None, privacy=PRIVACY, loss=None, **arguments):
    from tacit.integrations.transformers import PrivateTrainer

    settings = {"max_steps": 6, "save_steps": 2, "logging_steps": 2, "per_device_train_batch_size": 4} | arguments
    args = transformers.TrainingArguments(
        str(folder), report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=0.01, **settings
    )
    return PrivateTrainer(model or tiny(), args, train_dataset=records(), loss=loss, **privacy)


@pytest.mark.slow
def test_weights_and_ledger_are_those_of_a_loop_of_make_private(tmp_path):
    from tacit.losses import causal_lm

    trainer = trainer_of(
        tmp_path, privacy=PRIVACY | {"stream": SeededStream(4)}, lr_scheduler_type="constant", save_strategy="no"
    )
    output = trainer.train()
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    loader = torch.utils.data.DataLoader(records(), batch_size=4)
    private = make_private(model, optimizer, loader, **PRIVACY, steps=6, stream=SeededStream(4))
    for _, batch in zip(range(6), private.loader, strict=False):
        causal_lm(private.model(input_ids=batch["input_ids"]).logits, batch["labels"]).backward()
        private.optimizer.step()
    assert torch.allclose(flat(trainer.model), flat(model), atol=1e-6)
    assert trainer.private.ledger.steps == trainer.state.global_step == 6
    assert trainer.private.ledger.standing.value == "claimed"  # the stream is seeded
    assert math.isnan(output.training_loss)


@pytest.mark.slow
def test_logs_hold_epsilon_and_no_number_of_the_private_records(tmp_path):
    trainer = trainer_of(tmp_path, save_strategy="no")
    output = trainer.train()
    assert trainer.private.ledger.standing.value == "proven"
    rows = trainer.state.log_history
    assert all("epsilon" in row for row in rows)
    assert [row["epsilon"] for row in rows] == sorted(row["epsilon"] for row in rows)
    shown = {name for row in [*rows, output.metrics] for name in row}
    assert not {"loss", "train_loss", "grad_norm", "total_flos"} & shown


@pytest.mark.slow
def test_physical_batches_give_the_same_weights(tmp_path):
    found = []
    for limit in (None, 2):
        privacy = PRIVACY | {"stream": SeededStream(4), "max_physical_batch_size": limit}
        trainer = trainer_of(tmp_path / str(limit), privacy=privacy, save_strategy="no")
        trainer.train()
        assert trainer.private.ledger.steps == trainer.state.global_step == 6
        found.append(flat(trainer.model))
    assert torch.allclose(*found, atol=1e-5)


class Killed(BaseException):
    """Ends the process of a test without any clean-up of the trainer."""


class Kill(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **named):
        if state.global_step == self.step:
            raise Killed


def killed(folder, step, resume=None, **arguments):
    trainer = trainer_of(folder, **arguments)
    trainer.add_callback(Kill(step))
    with pytest.raises(Killed):
        trainer.train(resume_from_checkpoint=resume)
    return trainer.private.ledger.steps


@pytest.mark.parametrize("name", ["compute_loss", "_get_train_sampler"])
def test_a_method_that_private_steps_do_not_call_is_refused(tmp_path, monkeypatch, name):
    from tacit.integrations.transformers import PrivateTrainer

    monkeypatch.setattr(PrivateTrainer, name, lambda *given, **named: None, raising=False)
    with pytest.raises(TrainingMisuse, match=f"{name} must not be overridden by PrivateTrainer"):
        trainer_of(tmp_path)


def test_a_loss_of_evaluation_alone_may_be_overridden(tmp_path, monkeypatch):
    from tacit.integrations.transformers import PrivateTrainer

    monkeypatch.setattr(PrivateTrainer, "compute_loss", lambda *given, **named: None, raising=False)
    trainer_of(tmp_path, loss=lambda outputs, batch: outputs.logits.mean((1, 2)))


def test_a_loader_of_ones_own_is_refused_before_a_step(tmp_path, monkeypatch):
    from tacit.integrations.transformers import PrivateTrainer

    loader = torch.utils.data.DataLoader(records(), batch_size=4)
    monkeypatch.setattr(PrivateTrainer, "get_train_dataloader", lambda self: loader)
    with pytest.raises(TrainingMisuse, match="get_train_dataloader must call that of PrivateTrainer"):
        trainer_of(tmp_path).train()


@pytest.mark.slow
def test_a_run_that_was_killed_and_resumed_counts_every_step_that_ran(tmp_path):
    ran = killed(tmp_path, 3)
    ran += killed(tmp_path, 5, resume=True)
    trainer = trainer_of(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    # 3 steps, 3 from checkpoint 2 to step 5, and 2 from checkpoint 4 to the end ran; blocks count what was reserved.
    assert trainer.private.ledger.steps >= 3 + 3 + 2
    assert trainer.private.ledger.steps <= 6 + 2 * 6
    assert trainer.state.global_step == 6
    assert trainer.private.ledger.standing.value == "proven"
    assert ran >= 6


@pytest.mark.slow
def test_resuming_an_older_checkpoint_counts_what_ran_after_it(tmp_path):
    trainer_of(tmp_path).train()
    again = trainer_of(tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.private.ledger.steps == 6 + 4
    assert again.private.ledger.standing.value == "proven"


@pytest.mark.slow
def test_a_checkpoint_without_the_file_of_the_run_is_only_claimed(tmp_path):
    killed(tmp_path, 3)
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "checkpoint-2", moved / "checkpoint-2")
    (tmp_path / "tacit.safetensors").unlink()
    trainer = trainer_of(moved)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.private.ledger.standing.value == "claimed"
    assert trainer.private.ledger.steps >= 6 + 1


@pytest.mark.slow
def test_a_new_run_does_not_write_over_the_ledger_of_another(tmp_path):
    killed(tmp_path, 3)
    with pytest.raises(InvalidInput, match="without the ledger of an earlier one"):
        trainer_of(tmp_path).train()
    with pytest.raises(InvalidInput, match="with which the run of the checkpoint began"):
        trainer_of(tmp_path, privacy=PRIVACY | {"noise_multiplier": 2.0}).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 2},
        {"max_grad_norm": 0.5},
        {"label_smoothing_factor": 0.1},
        {"neftune_noise_alpha": 0.1},
        {"auto_find_batch_size": True},
        {"include_num_input_tokens_seen": "all"},
        {"save_only_model": True},
    ],
    ids=lambda value: next(iter(value)),
)
def test_settings_that_take_over_the_update_are_refused_by_name(tmp_path, arguments):
    with pytest.raises(TrainingMisuse, match=f"{next(iter(arguments))} must be"):
        trainer_of(tmp_path, **arguments)


def test_a_model_without_a_known_head_needs_a_loss(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, input_ids):
            return self.layer(input_ids.float())

    with pytest.raises(InvalidInput, match="loss given"):
        trainer_of(tmp_path, model=Net())
    trainer = trainer_of(tmp_path, model=Net(), loss=lambda out, batch: out.squeeze(1) ** 2, max_steps=2)
    trainer.train()
    assert trainer.private.ledger.steps == 2
