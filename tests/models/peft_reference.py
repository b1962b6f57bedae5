"""peft_reference.py write FOLDER [--all] | check FOLDER

The reference of adapters: PEFT over transformers and PyTorch, on the CPU.
write: tiny models with random weights and random adapters, each a folder with `base` and `adapter`
       as save_pretrained makes them, and beside them answers.safetensors: ids, labels as each
       position predicts them, logits, the mean loss over the labels that count, the gradient of
       every adapter, and the weights with the adapters merged, computed in float64.
       Without --all those that are committed in tests/models/peft_answers.
check: what //models has saved as CASE-saved from CASE/adapter: PEFT reads it, and it has the bits
       of CASE/adapter and its logits.
"""

import pathlib
import sys
import warnings

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

VOCABULARY = 37
IGNORED = -100

LLAMA = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=20, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=24,
            bos_token_id=None, eos_token_id=None)

COMMITTED = {
    "llama": (LlamaConfig(**LLAMA, tie_word_embeddings=False),
              dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "embed_tokens", "lm_head"])),
    "gpt2": (GPT2Config(**GPT2),
             dict(r=4, lora_alpha=5, use_rslora=True, target_modules=["c_attn", "mlp.c_proj", "wpe"])),
}
OTHERS = {
    "llama_default": (LlamaConfig(**LLAMA, tie_word_embeddings=False), dict(r=2)),
    "llama_all": (LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
                  dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "llama_pattern": (LlamaConfig(**LLAMA, tie_word_embeddings=False),
                      dict(r=5, lora_alpha=2.5,
                           target_modules=r"(.*\.)?layers\.[1-9]\.(mlp\.\w+_proj|self_attn\.(k|o)_proj)")),
    "gpt2_default": (GPT2Config(**GPT2), dict(r=2, lora_dropout=0.1)),
    "gpt2_tokens": (GPT2Config(**GPT2, tie_word_embeddings=False),
                    dict(r=2, target_modules=["wte", "c_fc"])),
}


def make(config, options, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model = peft.get_peft_model(model, peft.LoraConfig(**options, task_type="CAUSAL_LM")).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = 1.6 / config.hidden_size**0.5 * torch.randn(parameter.shape)
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            # Two of them are multiplied, and the product shall not be larger than the base.
            if ".lora_" in name:
                noise *= 0.6
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


def read(base, adapter, dtype):
    # Read again: rounding a model rounds its frequencies as well.
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True,
                                           autocast_adapter_dtype=False)
    return model.to(dtype).eval()


def write(folder, cases):
    for number, (name, (config, options)) in enumerate(cases.items()):
        model = make(config, options, 200 + number)
        model.save_pretrained(folder / name / "adapter")
        (folder / name / "adapter" / "README.md").unlink(missing_ok=True)
        model.unload().save_pretrained(folder / name / "base")
        (folder / name / "base" / "generation_config.json").unlink(missing_ok=True)
        model = read(folder / name / "base", folder / name / "adapter", torch.float64)
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
            if parameter.grad is None:
                continue
            saved = parameter_name.replace(".default", "")
            answers["gradient:" + saved] = parameter.grad.float().contiguous()
        merged = model.merge_and_unload()
        for parameter_name, parameter in merged.named_parameters():
            answers["merged:" + parameter_name] = parameter.detach().clone()
        save_file(answers, str(folder / name / "answers.safetensors"))


def check(folder):
    checked = 0
    for saved in sorted(folder.glob("*-saved")):
        case = folder / saved.name.removesuffix("-saved")
        ours = load_file(saved / "adapter_model.safetensors")
        theirs = load_file(case / "adapter" / "adapter_model.safetensors")
        theirs = {name: value for name, value in theirs.items() if ".lora_" in name}
        assert ours.keys() == theirs.keys(), (saved.name, ours.keys() ^ theirs.keys())
        for name in theirs:
            assert torch.equal(ours[name], theirs[name]), (saved.name, name)
        # PEFT reads it, and computes the same: the configuration says the same adapters.
        ids, _ = batch()
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            a = read(case / "base", saved, torch.float64)(ids).logits
            assert not [w for w in caught if "missing adapter keys" in str(w.message)], saved.name
            b = read(case / "base", case / "adapter", torch.float64)(ids).logits
        assert torch.equal(a, b), saved.name
        checked += 1
    assert checked >= 2, "nothing saved"
    print(f"PEFT reads {checked} adapters as they are")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ["write", "check"]:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "check":
        return check(folder)
    write(folder, {**COMMITTED, **OTHERS} if "--all" in sys.argv[3:] else COMMITTED)


main()
