"""The Trainer of Hugging Face transformers made private: a tiny Llama of random weights, stopped and resumed."""

import tempfile

import torch
import transformers

from tacit.integrations.transformers import PrivateTrainer
from tacit.training import PlanOptions

torch.manual_seed(0)
tokens = torch.randint(0, 20, (60, 8))
records = [{"input_ids": row, "labels": row} for row in tokens]
config = transformers.LlamaConfig(
    vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
)


class StopAfter(transformers.TrainerCallback):
    """Ends the training early, as a job that runs out of time."""

    def on_step_end(self, args, state, control, **named):
        control.should_training_stop = state.global_step == 4


options = PlanOptions(clip_norm=1.0, noise_multiplier=1.5, delta=1e-3)


def trainer(folder):
    args = transformers.TrainingArguments(
        folder, max_steps=8, save_steps=4, per_device_train_batch_size=6, use_cpu=True, report_to=[], disable_tqdm=True
    )
    model = transformers.LlamaForCausalLM(config)
    return PrivateTrainer(model, args, train_dataset=records, options=options)


with tempfile.TemporaryDirectory() as folder:
    first = trainer(folder)
    first.add_callback(StopAfter())
    first.train()
    second = trainer(folder)
    second.train(resume_from_checkpoint=True)
    epsilon = second.state.log_history[-1]["epsilon"]

print(second.private.ledger.steps, "private steps in the ledger of the resumed run")
print(f"epsilon {epsilon:.2f} at delta 1e-3, standing {second.private.ledger.standing.value}")
