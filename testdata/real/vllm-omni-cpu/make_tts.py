#!/usr/bin/env python3
"""Write a tiny, randomly initialised Qwen3-TTS checkpoint (custom voices) for the speech endpoints: two stages,
talker and code2wav, 12.5 codec frames a second, 24 kHz. Same rules as make_omni.py; needs vllm-omni importable.

    make_tts.py OUT [--seed 7] [--audio-mean 30]
"""

import argparse
import json
import math
import random
from pathlib import Path

import torch
from make_omni import FIRST_SPECIAL, TEMPLATE, VOCAB, build_tokenizer
from safetensors.torch import save_file
from transformers import EncodecFeatureExtractor, Qwen2TokenizerFast
from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import (
    configuration_qwen3_tts_tokenizer_v2 as codec_config,
)
from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as codec

H, HEAD, FF, LAYERS, GROUPS = 64, 32, 64, 2, 16
ROPE = {"rope_type": "default", "type": "default", "interleaved": True, "mrope_section": [8, 4, 4], "rope_theta": 1e6}
VOICES = {"vivian": 3065, "ryan": 3061, "aiden": 2861}
LANGUAGES = {"english": 2050, "chinese": 2055, "german": 2053}


def config():
    talker = dict(
        vocab_size=3072, hidden_size=H, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1, head_dim=HEAD, max_position_embeddings=8192, rope_theta=1e6, rope_scaling=ROPE,
        rope_parameters=ROPE, num_code_groups=GROUPS, text_hidden_size=H, text_vocab_size=VOCAB,
        position_id_per_seconds=13, codec_eos_token_id=2150, codec_think_id=2154, codec_nothink_id=2155,
        codec_think_bos_id=2156, codec_think_eos_id=2157, codec_pad_id=2148, codec_bos_id=2149, spk_id=VOICES,
        spk_is_dialect={v: False for v in VOICES}, codec_language_id=LANGUAGES, model_type="qwen3_tts_talker",
        code_predictor_config=dict(
            vocab_size=2048, hidden_size=H, intermediate_size=FF, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=HEAD, num_code_groups=GROUPS, rope_theta=1e6,
            max_position_embeddings=8192, model_type="qwen3_tts_talker_code_predictor",
        ),
    )
    return dict(
        architectures=["Qwen3TTSForConditionalGeneration"], model_type="qwen3_tts", tts_model_type="custom_voice",
        tts_model_size="0b6", tokenizer_type="qwen3_tts_tokenizer_12hz", dtype="bfloat16", talker_config=talker,
        speaker_encoder_config=dict(
            enc_dim=H, enc_channels=[16, 16, 16, 16, 48], enc_attention_channels=8, enc_res2net_scale=2,
            enc_se_channels=8, mel_dim=128, sample_rate=24000,
        ),
        im_start_token_id=151644, im_end_token_id=151645, tts_pad_token_id=151671, tts_bos_token_id=151672,
        tts_eos_token_id=151673, assistant_token_id=77091,
    )


def talker_weights(g, audio_mean):
    """Names as in the published checkpoint. Feature 0 of the residual stream is constant: see make_omni.py."""

    def rnd(*shape, std=None):
        return torch.randn(*shape, generator=g) * (0.5 / math.sqrt(shape[-1]) if std is None else std)

    def block(p):
        kv = HEAD
        o, down = rnd(H, 2 * HEAD), rnd(H, FF)
        o[0] = down[0] = 0
        return {
            f"{p}.input_layernorm.weight": torch.ones(H), f"{p}.post_attention_layernorm.weight": torch.ones(H),
            f"{p}.self_attn.q_proj.weight": rnd(2 * HEAD, H), f"{p}.self_attn.k_proj.weight": rnd(kv, H),
            f"{p}.self_attn.v_proj.weight": rnd(kv, H), f"{p}.self_attn.o_proj.weight": o,
            f"{p}.self_attn.q_norm.weight": torch.ones(HEAD), f"{p}.self_attn.k_norm.weight": torch.ones(HEAD),
            f"{p}.mlp.gate_proj.weight": rnd(FF, H), f"{p}.mlp.up_proj.weight": rnd(FF, H),
            f"{p}.mlp.down_proj.weight": down,
        }

    w = {}
    for i in range(LAYERS):
        w |= block(f"talker.model.layers.{i}")
    w |= block("talker.code_predictor.model.layers.0")
    w["talker.model.norm.weight"] = w["talker.code_predictor.model.norm.weight"] = torch.ones(H)
    w["talker.model.codec_embedding.weight"] = rnd(3072, H)
    w["talker.model.codec_embedding.weight"][:, 0] = 0.5
    w["talker.model.text_embedding.weight"] = rnd(VOCAB, H)
    w["talker.text_projection.linear_fc1.weight"], w["talker.text_projection.linear_fc1.bias"] = rnd(H, H), torch.zeros(H)
    fc2, bias = rnd(H, H), torch.zeros(H)
    fc2[0], bias[0] = 0, 0.5
    w["talker.text_projection.linear_fc2.weight"], w["talker.text_projection.linear_fc2.bias"] = fc2, bias
    for i in range(GROUPS - 1):
        e = rnd(2048, H)
        e[:, 0] = 0
        w[f"talker.code_predictor.model.codec_embedding.{i}.weight"] = e
        w[f"talker.code_predictor.lm_head.{i}.weight"] = rnd(2048, H)
    # a decode step's input: text plus 16 codes; feature 0 is 1.0, the others have this root mean square
    rms = math.sqrt((1.0 + (H - 1) * GROUPS * (0.5 / math.sqrt(H)) ** 2) / H)
    head = rnd(3072, H)
    head[:, 0] = 0
    head[2150] = 0
    head[2150, 0] = 0.9 * (math.log(2048) + 0.15 - math.log(audio_mean)) * rms
    w["talker.codec_head.weight"] = head
    return {k: v.to(torch.bfloat16).contiguous() for k, v in w.items()}


@torch.no_grad()
def write_codec(out):
    enc = dict(
        num_filters=4, hidden_size=32, codebook_dim=32, codebook_size=2048, vector_quantization_hidden_dimension=32,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16, intermediate_size=64,
        num_quantizers=16, num_semantic_quantizers=1, upsample_groups=32, sampling_rate=24000,
    )
    dec = dict(
        codebook_size=2048, codebook_dim=64, hidden_size=64, latent_dim=64, num_attention_heads=2, head_dim=32,
        num_key_value_heads=2, intermediate_size=64, num_hidden_layers=1, num_quantizers=16, decoder_dim=64,
        sliding_window=72,
    )
    cfg = codec_config.Qwen3TTSTokenizerV2Config(encoder_config=enc, decoder_config=dec)
    d = codec.Qwen3TTSTokenizerV2Decoder._from_config(cfg.decoder_config).eval()
    for name, p in [*d.named_parameters(), *d.named_buffers()]:
        if p.dim() > 1 and p.is_floating_point():
            p.normal_(0, 1 / math.sqrt(p[0].numel()) if "embed" not in name else 1)
    last = d.decoder[-1].conv
    last.bias.zero_()
    for level in (1e-3, 0.1):
        last.weight.mul_(level / d(torch.randint(0, 2048, (1, 16, 50))).float().std().item())
    e = codec.Qwen3TTSTokenizerV2Encoder._from_config(cfg.encoder_config)
    sub = out / "speech_tokenizer"
    sub.mkdir(exist_ok=True)
    cfg.save_pretrained(sub)
    tensors = {f"decoder.{k}": v for k, v in d.state_dict().items()} | {f"encoder.{k}": v for k, v in e.state_dict().items()}
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, sub / "model.safetensors")
    EncodecFeatureExtractor(feature_size=1, sampling_rate=24000).save_pretrained(sub)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--audio-mean", type=float, default=30)
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(a.seed)
    assert FIRST_SPECIAL == 151643
    Qwen2TokenizerFast(
        tokenizer_object=build_tokenizer(random.Random(a.seed)), eos_token="<|im_end|>", pad_token="<|endoftext|>",
        model_max_length=8192, chat_template=TEMPLATE,
    ).save_pretrained(a.out)
    (a.out / "config.json").write_text(json.dumps(config(), indent=2))
    (a.out / "generation_config.json").write_text(json.dumps({"eos_token_id": 2150, "do_sample": True}, indent=2))
    save_file(talker_weights(torch.Generator().manual_seed(a.seed), a.audio_mean), a.out / "model.safetensors")
    write_codec(a.out)


if __name__ == "__main__":
    main()
