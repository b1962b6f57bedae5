"""reference.py write FOLDER [--all] | check FOLDER

The reference of //models: transformers and PyTorch, on the CPU.
write: tiny models with random weights, each in a folder that save_pretrained makes, and beside it
       answers.safetensors: ids, labels as each position predicts them, logits, the mean loss over
       the labels that count, and the gradient of every parameter, computed in float64.
       Without --all those that are committed in tests/models/known_answers.
check: what //models has saved as CASE-saved: from_pretrained reads it, and every weight has the
       bits that CASE has; CASE-bfloat16 those of CASE rounded.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

VOCABULARY = 37
IGNORED = -100

LLAMA = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=24,
            bos_token_id=None, eos_token_id=None)
# Of the original 16 positions, waves of head_dim 8 are on both sides of both bounds.
SCALED = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
              original_max_position_embeddings=16)

COMMITTED = {
    "llama": LlamaConfig(**LLAMA, tie_word_embeddings=False),
    "llama_grouped": LlamaConfig(**LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0,
                                 rope_scaling=SCALED, tie_word_embeddings=False),
    "llama_tied": LlamaConfig(**LLAMA, num_key_value_heads=1, attention_bias=True, mlp_bias=True,
                              rms_norm_eps=1e-4, tie_word_embeddings=True),
    "gpt2": GPT2Config(**GPT2, n_inner=24, layer_norm_epsilon=1e-3),
}
OTHERS = {
    "llama_linear": LlamaConfig(**LLAMA, tie_word_embeddings=False,
                                rope_scaling=dict(rope_type="linear", factor=2.0)),
    "llama_wide": LlamaConfig(**{**LLAMA, "hidden_size": 96, "intermediate_size": 160},
                              num_key_value_heads=4, head_dim=32, tie_word_embeddings=False),
    "gpt2_plain": GPT2Config(**GPT2),
    "gpt2_untied": GPT2Config(**GPT2, tie_word_embeddings=False),
    "llama_sharded": LlamaConfig(**LLAMA, tie_word_embeddings=False),
    "llama_bf16": LlamaConfig(**LLAMA, tie_word_embeddings=False),
}


def make(config, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Wider products shall not have larger results, whose attention is all or nothing.
            noise = 1.6 / config.hidden_size**0.5 * torch.randn(parameter.shape)
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1 + noise / 2 if is_norm else noise)
    return model


def batch():
    """Two texts of 11 tokens; of the first a prompt has no loss, the second one is shorter."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, VOCABULARY, (2, 11), generator=generator)
    labels = ids.clone()
    labels[0, :4] = IGNORED
    labels[1, 8:] = IGNORED
    return ids, labels


def write(folder, configs):
    for number, (name, config) in enumerate(configs.items()):
        model = make(config, 100 + number)
        if name == "llama_bf16":
            model = model.bfloat16()
        size = "8KB" if name == "llama_sharded" else "5GB"
        model.save_pretrained(folder / name, max_shard_size=size)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        if name == "llama_sharded":
            assert (folder / name / "model.safetensors.index.json").exists()
        # Read again: rounding a model rounds its frequencies as well.
        model = AutoModelForCausalLM.from_pretrained(
            folder / name, dtype=torch.float64, attn_implementation="eager").eval()
        ids, labels = batch()
        out = model(input_ids=ids, labels=labels)
        out.loss.backward()
        # Position t predicts what stands at t + 1; the last one predicts nothing.
        shifted = torch.full_like(labels, IGNORED)
        shifted[:, :-1] = labels[:, 1:]
        answers = {"ids": ids.int(), "labels": shifted.int(),
                   "logits": out.logits.detach().float(),
                   "loss": out.loss.detach().float().reshape(1)}
        for parameter_name, parameter in model.named_parameters():
            answers["gradient:" + parameter_name] = parameter.grad.float().contiguous()
        save_file(answers, str(folder / name / "answers.safetensors"))


def check(folder):
    checked = 0
    for saved in sorted(folder.glob("*-saved")) + sorted(folder.glob("*-bfloat16")):
        case, kind = saved.name.rsplit("-", 1)
        dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
        ours, info = AutoModelForCausalLM.from_pretrained(
            saved, dtype=dtype, output_loading_info=True)
        for what in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
            assert not info[what], (saved.name, what, info[what])
        theirs = AutoModelForCausalLM.from_pretrained(folder / case, dtype=torch.float32)
        expected = theirs.to(dtype).state_dict()
        actual = ours.state_dict()
        assert actual.keys() == expected.keys(), saved.name
        for name in expected:
            assert torch.equal(actual[name], expected[name]), (saved.name, name)
        # The configuration says the same model.
        ids, _ = batch()
        if kind == "saved":
            with torch.no_grad():
                assert torch.equal(ours.eval()(ids).logits, theirs.eval()(ids).logits), saved.name
        checked += 1
    assert checked >= 2, "nothing saved"
    print(f"{checked} folders are as the reference reads them")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ["write", "check"]:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "check":
        return check(folder)
    write(folder, {**COMMITTED, **OTHERS} if "--all" in sys.argv[3:] else COMMITTED)


main()
