"""Tiny models of transformers, timm, torchvision and PEFT with random weights, as their users build them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit import losses

V, T, D, CLASSES, RECORDS = 40, 8, 16, 3, 24


@dataclass(frozen=True)
class Architecture:
    """One model, the records it trains on and the loss of one batch.

    Attributes:
        name: as the table prints it.
        library: whose model it is.
        build: makes the model.
        data: makes the arguments of the model and the labels, rows first.
        loss: `loss(outputs, labels)`, one value for each record.
        fast: whether the fast engine runs all of it, without copies of parameters for every record.
    """

    name: str
    library: str
    build: Callable[..., nn.Module]
    data: Callable[[], dict[str, Tensor]]
    loss: Callable[[Any, Tensor], Tensor]
    fast: bool = True


def installed(library: str) -> bool:
    """Whether `library` can be imported here."""
    return importlib.util.find_spec(library) is not None


def define_torchvision_operators() -> None:
    """Let torchvision be imported where its wheel is for CUDA and torch is for the CPU: its kernels do not load then.

    transformers, timm and Lightning import it where it is installed. No model here runs these operators.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(str(Path(spec.origin).parent / "_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")


def tokens(**more: Tensor) -> dict[str, Tensor]:
    ids = torch.randint(3, V, (RECORDS, T))
    mask = (torch.arange(T) < torch.randint(3, T + 1, (RECORDS, 1))).long()
    return {"input_ids": ids * mask, "attention_mask": mask, **more}


def texts() -> dict[str, Tensor]:
    batch = tokens()
    return batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def labelled_texts() -> dict[str, Tensor]:
    return tokens(labels=torch.randint(0, CLASSES, (RECORDS,)))


def tagged_texts() -> dict[str, Tensor]:
    batch = texts()
    return batch | {"labels": torch.where(batch["labels"] < 0, -100, batch["labels"] % CLASSES)}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(RECORDS, 3, 32, 32), "labels": torch.randint(0, CLASSES, (RECORDS,))}


def first_images() -> dict[str, Tensor]:
    return {"x": torch.randn(RECORDS, 3, 32, 32), "labels": torch.randint(0, CLASSES, (RECORDS,))}


def classes(outputs: Any, labels: Tensor) -> Tensor:
    return cross_entropy(getattr(outputs, "logits", outputs), labels, reduction="none")


def causal(outputs: Any, labels: Tensor) -> Tensor:
    return losses.causal_lm(outputs.logits, labels)


def masked(outputs: Any, labels: Tensor) -> Tensor:
    return losses.masked_lm(outputs.logits, labels, per="token")


def hugging_face(name: str, **config: Any) -> Callable[..., nn.Module]:
    """A model of transformers by the name of its class, without dropout, so that it can be compared; or as it comes."""

    def build(raw: bool = False) -> nn.Module:
        import transformers

        kind = getattr(transformers, name)
        settings = kind.config_class(**config)
        if raw:
            return kind(settings)
        for key in vars(settings):
            if "drop" in key and isinstance(getattr(settings, key), float):
                setattr(settings, key, 0.0)
        if hasattr(settings, "num_local_experts"):
            # Its grouped products have no kernel in float64, which the reference needs.
            settings._experts_implementation = "eager"
        return kind(settings)

    return build


_BERT = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_BERT |= {"max_position_embeddings": 16, "num_labels": CLASSES, "pad_token_id": 0}
_LLAMA = _BERT | {"num_key_value_heads": 1, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA.pop("num_labels")
_IMAGES = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_IMAGES |= {"image_size": 32, "patch_size": 8, "num_labels": CLASSES}
_GPT2 = {"vocab_size": V, "n_positions": 16, "n_embd": D, "n_layer": 2, "n_head": 2, "bos_token_id": 1}
_GPT2 |= {"eos_token_id": 2}


def _text(name: str, loss: Any, data: Any = texts, fast: bool = True, **config: Any) -> Architecture:
    return Architecture(name, "transformers", hugging_face(name, **config), data, loss, fast)


def without_batch_norm(model: nn.Module) -> nn.Module:
    from tacit.gradients import fix

    return fix(model)[0]


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        return without_batch_norm(getattr(torchvision.models, name)(num_classes=CLASSES, weights=None, **options))

    return build


def timm_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        return without_batch_norm(timm.create_model(name, num_classes=CLASSES, pretrained=False, **options))

    return build


def mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=CLASSES, img_size=32, patch_size=8, num_blocks=2, embed_dim=16)


def adapted(kind: str, base: Callable[..., nn.Module], **options: Any) -> Callable[..., nn.Module]:
    """A frozen model with an adapter of PEFT."""

    def build(raw: bool = False) -> nn.Module:
        import peft

        model = peft.get_peft_model(base(raw), getattr(peft, kind)(task_type="CAUSAL_LM", **options))
        for parameter in model.parameters():
            if parameter.requires_grad and not bool(parameter.any()):
                # A matrix of zeros would leave the other one of an adapter without a gradient.
                torch.nn.init.normal_(parameter, std=0.1)
        return model

    return build


_llama = hugging_face("LlamaForCausalLM", **_LLAMA)
_gpt2 = hugging_face("GPT2LMHeadModel", **_GPT2)
_TARGETS = {"target_modules": ["q_proj", "v_proj", "down_proj"]}

ARCHITECTURES = [
    _text("BertForSequenceClassification", classes, labelled_texts, **_BERT),
    _text("BertForMaskedLM", masked, **_BERT),
    _text("BertForTokenClassification", lambda o, y: losses.token_classification(o.logits, y), tagged_texts, **_BERT),
    _text(
        "DistilBertForSequenceClassification",
        classes,
        labelled_texts,
        vocab_size=V,
        dim=D,
        n_layers=2,
        n_heads=2,
        hidden_dim=32,
        max_position_embeddings=16,
        num_labels=CLASSES,
    ),
    _text("RobertaForSequenceClassification", classes, labelled_texts, **_BERT | {"max_position_embeddings": 20}),
    _text("ElectraForMaskedLM", masked, **_BERT | {"embedding_size": D}),
    _text("AlbertForMaskedLM", masked, **_BERT | {"embedding_size": D}),
    _text(
        "DebertaV2ForSequenceClassification",
        classes,
        labelled_texts,
        # Its default loss is a mean over the rows whose label is not negative, a private number.
        **_BERT
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "problem_type": "single_label_classification"},
    ),
    _text("GPT2LMHeadModel", causal, **_GPT2),
    _text(
        "GPT2ForSequenceClassification", classes, labelled_texts, **_GPT2 | {"num_labels": CLASSES, "pad_token_id": 0}
    ),
    _text(
        "OPTForCausalLM",
        causal,
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        ffn_dim=32,
        num_attention_heads=2,
        max_position_embeddings=16,
        word_embed_proj_dim=D,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    _text("GPTNeoXForCausalLM", causal, **_LLAMA),
    _text(
        "BloomForCausalLM",
        causal,
        vocab_size=V,
        hidden_size=D,
        n_layer=2,
        n_head=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    _text("PhiForCausalLM", causal, **_LLAMA),
    _text("LlamaForCausalLM", causal, **_LLAMA),
    _text("Qwen2ForCausalLM", causal, **_LLAMA),
    _text("Qwen3ForCausalLM", causal, **_LLAMA),
    _text("MistralForCausalLM", causal, **_LLAMA),
    _text("GemmaForCausalLM", causal, **_LLAMA),
    _text("Gemma2ForCausalLM", causal, **_LLAMA),
    _text("MixtralForCausalLM", causal, **_LLAMA | {"num_local_experts": 3, "num_experts_per_tok": 2}),
    _text(
        "MambaForCausalLM",
        causal,
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        state_size=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    _text(
        "T5ForConditionalGeneration",
        lambda o, y: losses.seq2seq_lm(o.logits, y),
        vocab_size=V,
        d_model=D,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
    _text(
        "BartForConditionalGeneration",
        lambda o, y: losses.seq2seq_lm(o.logits, y),
        vocab_size=V,
        d_model=D,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
    ),
    _text("ViTForImageClassification", classes, images, **_IMAGES),
    _text("DeiTForImageClassification", classes, images, **_IMAGES),
    _text(
        "ConvNextForImageClassification",
        classes,
        images,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_stages=2,
        patch_size=4,
        num_labels=CLASSES,
    ),
    _text(
        "SwinForImageClassification",
        classes,
        images,
        image_size=32,
        patch_size=4,
        embed_dim=8,
        depths=[2, 1],
        num_heads=[2, 2],
        window_size=4,
        num_labels=CLASSES,
    ),
    Architecture("resnet18, GroupNorm", "torchvision", vision("resnet18"), first_images, classes),
    Architecture(
        "mobilenet_v3_small, GroupNorm", "torchvision", vision("mobilenet_v3_small", dropout=0.0), first_images, classes
    ),
    Architecture(
        "vit_tiny_patch16_224",
        "timm",
        timm_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=2, num_heads=2),
        first_images,
        classes,
    ),
    Architecture(
        "convnext_atto",
        "timm",
        timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)),
        first_images,
        classes,
    ),
    Architecture("MlpMixer", "timm", mixer, first_images, classes),
    Architecture(
        "LoRA on GPT-2",
        "peft",
        adapted("LoraConfig", _gpt2, r=2, target_modules=["c_attn"], fan_in_fan_out=True),
        texts,
        causal,
    ),
    Architecture("LoRA on Llama", "peft", adapted("LoraConfig", _llama, r=2, **_TARGETS), texts, causal),
    Architecture("DoRA on Llama", "peft", adapted("LoraConfig", _llama, r=2, use_dora=True, **_TARGETS), texts, causal),
    Architecture(
        "IA3 on Llama",
        "peft",
        adapted("IA3Config", _llama, feedforward_modules=["down_proj"], **_TARGETS),
        texts,
        causal,
    ),
    Architecture(
        "prompt tuning on Llama",
        "peft",
        adapted("PromptTuningConfig", _llama, num_virtual_tokens=3),
        texts,
        lambda o, y: losses.causal_lm(o.logits[:, 3:], y),
    ),
]
