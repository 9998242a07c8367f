#!/usr/bin/env python3
"""Write a tiny, randomly initialised Qwen3-Omni checkpoint that vLLM-Omni serves as three stages.

The architecture, the token ids and the codec frame rate (12.5 frames/s, 24 kHz) are the real model's;
hidden sizes, layers and experts are cut down to a few megabytes. The weights are noise, so text is made-up words
and audio is noise; neither means anything. Nothing is downloaded.

    make_omni.py OUT [--seed 7] [--text-mean 40] [--audio-mean 40]

--text-mean, --audio-mean: mean number of text tokens and of codec frames (80 ms each) before the model stops by
itself when sampled at temperature 1 (thinker) and with the default talker sampling. Both are rough.
"""

import argparse
import json
import math
import random
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    Qwen2TokenizerFast,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeProcessor,
    WhisperFeatureExtractor,
)

VOCAB = 152064
SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> "
    "<tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
).split()
FIRST_SPECIAL = 151643
FIXED = {"user": 872, "system": 8948, "assistant": 77091}  # the server's code names these ids
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'text' %}{{ p.text }}"
    "{% elif 'audio' in p.type %}<|audio_start|><|audio_pad|><|audio_end|>"
    "{% elif 'image' in p.type %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'video' in p.type %}<|vision_start|><|video_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet():
    """Byte value to printable character, in the id order that GPT-2 style vocabularies use."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    table = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [(b, table[b]) for b in keep + rest]


def made_up_words(rng, n, taken):
    """n distinct words out of syllables, most with a leading space, a few with accents, CJK or an emoji."""
    on = "b d f g k l m n p r s t v z br dr kl st tr sh".split()
    vo = "a e i o u ai ea ou".split()
    odd = ["é", "ü", "ñ", "ç", "ø", "я", "語", "音", "声", "한", "🙂", "🎧"]
    to = dict(byte_alphabet())
    out = []
    while len(out) < n:
        w = "".join(rng.choice(on) + rng.choice(vo) for _ in range(rng.randint(1, 4)))
        if rng.random() < 0.04:
            w += rng.choice(odd)
        w += rng.choice(["", "", "", "n", "s", "r", "l"])
        r = rng.random()
        w = " " + w if r < 0.9 else w + "," if r < 0.94 else w + ". " if r < 0.97 else w
        w = "".join(to[b] for b in w.encode())
        if w not in taken:
            taken.add(w)
            out.append(w)
    return out


def build_tokenizer(rng):
    vocab = {ch: i for i, (_, ch) in enumerate(byte_alphabet())}
    merges = []
    taken = set(vocab)
    for word, wid in FIXED.items():  # spell each fixed word with merges of its own prefixes
        for i in range(2, len(word) + 1):
            left, tok = word[: i - 1], word[:i]
            if tok not in taken:
                merges.append((left, tok[-1]))
                taken.add(tok)
                vocab[tok] = wid if tok == word else None
    free = iter(sorted(set(range(256, FIRST_SPECIAL)) - set(FIXED.values())))
    vocab = {t: next(free) if i is None else i for t, i in vocab.items()}
    rest = list(free)
    vocab |= dict(zip(made_up_words(rng, len(rest), taken), rest, strict=True))
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    for i, s in enumerate(SPECIAL):
        think = s.startswith("<tool") or s.startswith("</") or s == "<think>"
        tok.add_special_tokens([AddedToken(s, special=True, normalized=False)]) if not think else tok.add_tokens(
            [AddedToken(s, special=False, normalized=False)]
        )
        assert tok.token_to_id(s) == FIRST_SPECIAL + i, (s, tok.token_to_id(s))
    for word, wid in FIXED.items():
        assert tok.encode(f"<|im_start|>{word}\n").ids == [151644, wid, 198], word
    return tok


def build_config():
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 4, 4], "interleaved": True, "mrope_interleaved": True}
    text = dict(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=26, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
        mlp_only_layers=list(range(1, 26)), max_position_embeddings=8192, rope_parameters=rope, rope_scaling=rope,
        rope_theta=1e6, pad_token_id=151643, bos_token_id=151643, eos_token_id=151645,
    )
    thinker = dict(
        text_config=text,
        audio_config=dict(
            encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=64, d_model=64, output_dim=64,
            downsample_hidden_size=16, num_mel_bins=128, n_window=50, n_window_infer=800,
        ),
        vision_config=dict(
            depth=2, hidden_size=64, intermediate_size=64, num_heads=2, out_hidden_size=64, patch_size=16,
            spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=256, image_size=256, apply_vit_abs_pos_embed=True, deepstack_visual_indexes=[1],
        ),
        audio_token_id=151675, image_token_id=151655, video_token_id=151656, audio_start_token_id=151669,
        audio_end_token_id=151670, vision_start_token_id=151652, vision_end_token_id=151653, user_token_id=872,
        position_id_per_seconds=13,
    )
    talker = dict(
        text_config=dict(
            vocab_size=3072, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, moe_intermediate_size=32, shared_expert_intermediate_size=32,
            num_experts=4, num_experts_per_tok=2, max_position_embeddings=8192, rope_parameters=rope, rope_scaling=rope,
            rope_theta=1e6, eos_token_id=2150,
        ),
        code_predictor_config=dict(
            vocab_size=2048, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, num_code_groups=16, rope_theta=1e6,
        ),
        num_code_groups=16, thinker_hidden_size=64, accept_hidden_layer=24, spatial_merge_size=2,
        codec_eos_token_id=2150, codec_nothink_id=2155, codec_think_bos_id=2156, codec_think_eos_id=2157,
        codec_pad_id=2148, codec_bos_id=2149, audio_token_id=151675, audio_start_token_id=151669,
        image_token_id=151655, video_token_id=151656, vision_start_token_id=151652, position_id_per_seconds=13,
        speaker_id={"chelsie": 2301, "ethan": 2302, "aiden": 2303},
    )
    code2wav = dict(
        codebook_size=2048, hidden_size=64, num_attention_heads=2, num_key_value_heads=2, intermediate_size=64,
        num_hidden_layers=1, num_quantizers=16, upsample_rates=[8, 5, 4, 3], upsampling_ratios=[2, 2], decoder_dim=64,
        sliding_window=72,
    )
    return Qwen3OmniMoeConfig(
        thinker_config=thinker, talker_config=talker, code2wav_config=code2wav, enable_audio_output=True,
        dtype="bfloat16", architectures=["Qwen3OmniMoeForConditionalGeneration"],
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--text-mean", type=float, default=40)
    ap.add_argument("--audio-mean", type=float, default=40)
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(a.seed)
    torch.manual_seed(a.seed)

    fast = Qwen2TokenizerFast(
        tokenizer_object=build_tokenizer(rng), eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=8192,
        extra_special_tokens={
            "image_token": "<|image_pad|>", "audio_token": "<|audio_pad|>", "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
            "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
        },
    )
    Qwen3OmniMoeProcessor(
        Qwen2VLImageProcessor(patch_size=16, temporal_patch_size=2, merge_size=2),
        Qwen2VLVideoProcessor(patch_size=16, temporal_patch_size=2, merge_size=2),
        WhisperFeatureExtractor(feature_size=128, chunk_length=300), fast, chat_template=TEMPLATE,
    ).save_pretrained(a.out)

    cfg = build_config()
    model = Qwen3OmniMoeForConditionalGeneration(cfg).to(torch.bfloat16)
    shape_weights(model, a)
    model.save_pretrained(a.out)
    (a.out / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 151645, "pad_token_id": 151643, "do_sample": True, "temperature": 1.0}, indent=2)
    )


@torch.no_grad()
def shape_weights(model, a):
    """Make the noise usable: text and audio that end by themselves, and audio that is audible.

    Feature 0 of the residual stream is held constant (set by the embeddings, written by no layer), so that one weight
    in a head's row gives the stop token a fixed logit above the noise of the others.
    """
    for name, p in model.named_parameters():
        if p.dim() < 2:
            continue
        fan_in = p[0].numel()
        if name.startswith("code2wav.code_embedding"):
            p.normal_(0, 1)
        elif name.startswith("code2wav"):
            p.normal_(0, 1 / math.sqrt(fan_in))
        else:
            p.normal_(0, 0.5 / math.sqrt(p.shape[-1]))
    think = getattr(model.thinker.model, "language_model", model.thinker.model)  # nested from transformers 5.2x on
    talk = model.talker.model
    for lm in (think, talk):
        for name, p in lm.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                p[0] = 0
            elif name.endswith("experts.down_proj"):
                p[:, 0] = 0
    think.embed_tokens.weight[:, 0] = 0.5
    talk.codec_embedding.weight[:, 0] = 0.5
    for proj in (model.talker.text_projection, model.talker.hidden_projection):
        proj.linear_fc2.weight[0] = 0
        proj.linear_fc2.bias[0] = 0.5
    for emb in model.talker.code_predictor.model.codec_embedding:
        emb.weight[:, 0] = 0

    def constant(lm, embeds):  # what feature 0 is after the last norm
        return lm(inputs_embeds=embeds, use_cache=False).last_hidden_state[..., 0].float().mean().item()

    ids = torch.randint(256, FIRST_SPECIAL, (1, 64))
    c = constant(think, think.embed_tokens(ids))
    head = model.thinker.lm_head.weight
    head[:, 0] = 0
    head[FIRST_SPECIAL:, 0] = -20 / c  # no other special token, no id without a token
    head[151645] = 0
    head[151645, 0] = (math.log(FIRST_SPECIAL) + 0.125 - math.log(a.text_mean)) / c

    head = model.talker.codec_head.weight
    step = talk.codec_embedding(torch.randint(0, 2048, (1, 64))) + model.talker.text_projection(think.embed_tokens(ids))
    for emb in model.talker.code_predictor.model.codec_embedding:
        step = step + emb(torch.randint(0, 2048, (1, 64)))  # a decode step's input: text plus all 16 codes
    c = constant(talk, step)
    head[:, 0] = 0
    head[2150] = 0
    head[2150, 0] = 0.9 * (math.log(2048) + 0.15 - math.log(a.audio_mean)) / c

    last = model.code2wav.decoder[-1].conv
    last.bias.zero_()
    for level in (1e-3, 0.1):  # twice: the first keeps clear of the clamp at 1, where a level cannot be measured
        last.weight.mul_(level / model.code2wav(torch.randint(0, 2048, (1, 16, 50))).float().std().item())


if __name__ == "__main__":
    main()
