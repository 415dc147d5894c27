"""Models of random weights, each with a loss as its users write it.

make(name, size, device) gives a model and a function loss(model, step, device)
that makes the batch of a step.  Models follow the defaults of their library, but
for their size.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools

with contextlib.suppress(ModuleNotFoundError):  # --list goes without
    import torch
    import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Size:
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    batch: int
    length: int
    image: int
    scale: int = 1  # what else is divided by

    @property
    def inner(self) -> int:
        return 4 * self.hidden

    @property
    def head(self) -> int:
        return self.hidden // self.heads


SIZES = {
    "full": Size(512, 8, 8, 8192, 4, 256, 224),
    "tiny": Size(32, 2, 2, 64, 2, 16, 32, 8),
}
BILLION = Size(2048, 16, 32, 32000, 1, 512, 0)


class Source:
    """Of numbers for batches: the same in each row."""

    def __init__(self, step: int, device: str):
        self.generator = torch.Generator().manual_seed(1000 + step)
        self.device = device

    def integers(self, most: int, *shape):
        return torch.randint(3, most, shape, generator=self.generator).to(
            self.device)

    def noise(self, *shape, dtype=None):
        return torch.randn(shape, generator=self.generator).to(
            self.device, dtype)


def _dtype(model):
    return next(model.parameters()).dtype


# ---- transformers ----------------------------------------------------------

_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _decoder(s: Size) -> dict:
    return dict(hidden_size=s.hidden, intermediate_size=s.inner,
                num_hidden_layers=s.layers, num_attention_heads=s.heads,
                num_key_value_heads=s.heads // 2, vocab_size=s.vocabulary,
                max_position_embeddings=2 * s.length, **_IDS)


def _language(kind: str, config: str, s: Size, **more):
    import transformers

    made = getattr(transformers, config)(**more)
    model = getattr(transformers, kind)(made)

    def loss(model, source):
        tokens = source.integers(s.vocabulary, s.batch, s.length)
        return model(input_ids=tokens, labels=tokens).loss

    return model, loss


def gpt2(s):
    return _language("GPT2LMHeadModel", "GPT2Config", s, n_embd=s.hidden,
                     n_layer=s.layers, n_head=s.heads,
                     vocab_size=s.vocabulary, n_positions=2 * s.length,
                     bos_token_id=1, eos_token_id=2)


def llama(s):
    return _language("LlamaForCausalLM", "LlamaConfig", s, **_decoder(s))


def qwen3(s):
    return _language("Qwen3ForCausalLM", "Qwen3Config", s, **_decoder(s),
                     head_dim=s.head)


def gemma3(s):
    return _language("Gemma3ForCausalLM", "Gemma3TextConfig", s,
                     **_decoder(s), head_dim=s.head,
                     sliding_window=s.length // 2)


def phi3(s):
    return _language("Phi3ForCausalLM", "Phi3Config", s, **_decoder(s))


def gpt_oss(s):
    return _language("GptOssForCausalLM", "GptOssConfig", s, **_decoder(s),
                     head_dim=s.head, num_local_experts=8,
                     num_experts_per_tok=2, sliding_window=s.length // 2)


def mixtral(s):
    return _language("MixtralForCausalLM", "MixtralConfig", s, **_decoder(s),
                     num_local_experts=8)


def qwen3_moe(s):
    return _language("Qwen3MoeForCausalLM", "Qwen3MoeConfig", s,
                     **_decoder(s), head_dim=s.head, num_experts=8,
                     num_experts_per_tok=2, moe_intermediate_size=s.hidden)


def deepseek_v3(s):
    sizes = _decoder(s)
    sizes["num_key_value_heads"] = s.heads
    return _language("DeepseekV3ForCausalLM", "DeepseekV3Config", s, **sizes,
                     n_routed_experts=8, num_experts_per_tok=2,
                     moe_intermediate_size=s.hidden, n_group=1, topk_group=1,
                     q_lora_rank=s.hidden // 2, kv_lora_rank=s.hidden // 4,
                     qk_nope_head_dim=s.head // 2,
                     qk_rope_head_dim=s.head // 2, v_head_dim=s.head,
                     first_k_dense_replace=1, n_shared_experts=1)


def mamba2(s):
    return _language("Mamba2ForCausalLM", "Mamba2Config", s,
                     hidden_size=s.hidden, num_heads=2 * s.heads,
                     head_dim=s.head, expand=2, state_size=64 // s.scale,
                     n_groups=1, num_hidden_layers=s.layers,
                     vocab_size=s.vocabulary, chunk_size=s.length // 2, **_IDS)


def qwen3_next(s):
    period = min(4, s.layers)
    kinds = ["linear_attention" if (i + 1) % period else "full_attention"
             for i in range(s.layers)]
    return _language("Qwen3NextForCausalLM", "Qwen3NextConfig", s,
                     **_decoder(s), head_dim=s.head, num_experts=8,
                     num_experts_per_tok=2, moe_intermediate_size=s.hidden,
                     shared_expert_intermediate_size=s.hidden,
                     linear_num_value_heads=s.heads,
                     linear_num_key_heads=s.heads // 2,
                     linear_key_head_dim=s.head,
                     linear_value_head_dim=s.head, layer_types=kinds)


def jamba(s):
    return _language("JambaForCausalLM", "JambaConfig", s, **_decoder(s),
                     num_experts=4, expert_layer_period=2,
                     attn_layer_period=min(4, s.layers), attn_layer_offset=1,
                     mamba_d_state=16, mamba_dt_rank=16,
                     use_mamba_kernels=False)


def bert(s):
    return _language("BertForMaskedLM", "BertConfig", s, hidden_size=s.hidden,
                     intermediate_size=s.inner, num_hidden_layers=s.layers,
                     num_attention_heads=s.heads, vocab_size=s.vocabulary,
                     max_position_embeddings=2 * s.length)


def modernbert(s):
    return _language("ModernBertForMaskedLM", "ModernBertConfig", s,
                     hidden_size=s.hidden, intermediate_size=s.inner,
                     num_hidden_layers=s.layers,
                     num_attention_heads=s.heads, vocab_size=s.vocabulary,
                     max_position_embeddings=2 * s.length,
                     local_attention=s.length // 2, pad_token_id=0,
                     bos_token_id=1, eos_token_id=2, cls_token_id=1,
                     sep_token_id=2)


def t5(s):
    return _language("T5ForConditionalGeneration", "T5Config", s,
                     d_model=s.hidden, d_kv=s.head, d_ff=s.inner,
                     num_layers=s.layers, num_heads=s.heads,
                     vocab_size=s.vocabulary, decoder_start_token_id=0)


def whisper(s):
    import transformers

    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            d_model=s.hidden, encoder_layers=s.layers,
            decoder_layers=s.layers, encoder_attention_heads=s.heads,
            decoder_attention_heads=s.heads, encoder_ffn_dim=s.inner,
            decoder_ffn_dim=s.inner, vocab_size=s.vocabulary,
            num_mel_bins=80 // s.scale, max_source_positions=2 * s.length,
            max_target_positions=s.length, decoder_start_token_id=1,
            begin_suppress_tokens=None, **_IDS))

    def loss(model, source):
        sound = source.noise(s.batch, 80 // s.scale, 4 * s.length,
                             dtype=_dtype(model))
        tokens = source.integers(s.vocabulary, s.batch, s.length // 2)
        return model(input_features=sound, labels=tokens).loss

    return model, loss


def vit(s):
    import transformers

    model = transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=s.hidden, num_hidden_layers=s.layers,
        num_attention_heads=s.heads, intermediate_size=s.inner,
        image_size=s.image, patch_size=16, num_labels=100))

    def loss(model, source):
        image = source.noise(4 * s.batch, 3, s.image, s.image,
                             dtype=_dtype(model))
        return model(pixel_values=image,
                     labels=source.integers(100, 4 * s.batch)).loss

    return model, loss


def llama_1b(s):
    return llama(s if s.scale > 1 else BILLION)


def qwen3_1b(s):
    return qwen3(s if s.scale > 1 else dataclasses.replace(BILLION, layers=20))


# ---- timm ------------------------------------------------------------------


def _image(name: str, s: Size, image: int | None = None, **more):
    import timm

    edge = image or s.image
    model = timm.create_model(name, num_classes=100, **more)

    def loss(model, source):
        found = model(source.noise(4 * s.batch, 3, edge, edge,
                                   dtype=_dtype(model)))
        return F.cross_entropy(found.float(),
                               source.integers(100, 4 * s.batch))

    return model, loss


def timm_vit(s):
    return _image("vit_small_patch16_224", s, img_size=s.image)


def convnext(s):
    return _image("convnext_tiny" if s.scale == 1 else "convnext_atto", s)


def mixer(s):
    return _image("mixer_s32_224", s, img_size=s.image)


def swin(s):
    return _image("swin_tiny_patch4_window7_224", s,
                  224 if s.scale == 1 else 56,
                  img_size=224 if s.scale == 1 else 56)


def resnet(s):
    return _image("resnet50" if s.scale == 1 else "resnet18", s)


# ---- diffusers -------------------------------------------------------------


def unet(s):
    import diffusers

    channels = (128 // s.scale, 256 // s.scale)
    model = diffusers.UNet2DConditionModel(
        sample_size=32, in_channels=4, out_channels=4, layers_per_block=2,
        block_out_channels=channels,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=s.hidden, attention_head_dim=8,
        norm_num_groups=8)

    def loss(model, source):
        dtype = _dtype(model)
        image = source.noise(s.batch, 4, 32, 32, dtype=dtype)
        words = source.noise(s.batch, 7, s.hidden, dtype=dtype)
        times = source.integers(999, s.batch)
        return model(image, times, words).sample.float().pow(2).mean()

    return model, loss


def dit(s):
    import diffusers

    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=s.heads, attention_head_dim=s.head,
        in_channels=4, num_layers=s.layers, sample_size=32, patch_size=2,
        num_embeds_ada_norm=1000)

    def loss(model, source):
        image = source.noise(s.batch, 4, 32, 32, dtype=_dtype(model))
        return model(image, timestep=source.integers(999, s.batch),
                     class_labels=source.integers(999, s.batch),
                     ).sample.float().pow(2).mean()

    return model, loss


# In the order in which they are measured, with what they need.
MODELS = {
    each.__name__: (library, each) for library, several in (
        ("transformers", (gpt2, llama, bert, qwen3_moe, t5, gemma3, vit,
                          mixtral, deepseek_v3, gpt_oss)),
        ("timm", (convnext, timm_vit)),
        ("transformers", (llama_1b, whisper, modernbert, qwen3, phi3, mamba2,
                          qwen3_next, jamba)),
        ("timm", (mixer, swin, resnet)),
        ("transformers", (qwen3_1b,)),
        ("diffusers", (unet, dit)),
    ) for each in several
}


def make(name: str, size: str, device: str):
    """The model, made on the device, and its loss(model, step, device)."""
    torch.manual_seed(1)
    with torch.device(device):
        model, loss = MODELS[name][1](SIZES[size])
    return model, functools.partial(_loss, loss)


def _loss(loss, model, step: int, device: str):
    return loss(model, Source(step, device))
