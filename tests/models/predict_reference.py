"""predict_reference.py MODEL FILE CONTEXT [ADAPTER]

What //models:predict says of a file, by transformers in float64: of JSON lines with prompt and
answer, whose bytes are the tokens and whose answers count; prints a line of JSON.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main():
    folder, file, context = sys.argv[1], sys.argv[2], int(sys.argv[3])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64,
                                                 attn_implementation="eager")
    if len(sys.argv) > 4:
        import peft
        model = peft.PeftModel.from_pretrained(model, sys.argv[4], autocast_adapter_dtype=False)
        model = model.to(torch.float64)
    model = model.eval()
    loss = tokens = correct = 0
    with open(file, "rb") as lines:
        for line in lines:
            sample = json.loads(line)
            # The template "plain": a newline behind the prompt.
            prompt = list((sample["prompt"] + "\n").encode())
            ids = torch.tensor(prompt + list(sample["answer"].encode()))[: context + 1]
            with torch.no_grad():
                logits = model(ids[None, :-1]).logits[0]
            # Position t predicts what stands at t + 1.
            counted = torch.arange(1, len(ids)) >= len(prompt)
            targets = ids[1:][counted]
            losses = torch.nn.functional.cross_entropy(logits[counted], targets, reduction="none")
            loss += losses.sum().item()
            tokens += len(targets)
            correct += (logits[counted].argmax(-1) == targets).sum().item()
    mean = loss / tokens
    print(json.dumps({"tokens": tokens, "loss": mean, "perplexity": float(torch.tensor(mean).exp()),
                      "accuracy": correct / tokens}))


main()
