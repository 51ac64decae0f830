"""torch + transformers + PEFT: the same update, written the way its users write it, at its best.

Logits at completion positions only, SDPA attention, micro-batches of `argv[2]` rows.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from shapes import SHAPES, hf_values, make_data
from transformers import Qwen3Config, Qwen3ForCausalLM
from worker import serve

shape, rows = SHAPES[sys.argv[1]], int(sys.argv[2])
torch.manual_seed(0)
values = hf_values(shape)
values.pop("model_type")
config = Qwen3Config(**values, attn_implementation="sdpa", use_cache=False)
names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
model = get_peft_model(
    Qwen3ForCausalLM(config), LoraConfig(r=shape.rank, lora_alpha=shape.rank, target_modules=names)
)
model.train()
trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-4)
ids, advantages = (torch.from_numpy(x) for x in make_data(shape))
ids = ids.long()
sampler = torch.full((shape.rows, shape.completion), -9.0)


def update() -> float:
    optimizer.zero_grad()
    total = 0.0
    for start in range(0, shape.rows, rows):
        part = slice(start, start + rows)
        logits = model(input_ids=ids[part], logits_to_keep=shape.completion + 1).logits[:, :-1]
        targets = ids[part, shape.prompt :]
        logprobs = -torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none"
        ).view_as(targets)
        weight = torch.clip((logprobs.detach() - sampler[part]).exp(), 0.0, 4.0)
        loss = -(weight * advantages[part, None] * logprobs).sum() / sampler.numel()
        loss.backward()
        total += float(loss)
    torch.nn.utils.clip_grad_norm_(trainable, 1.0)
    optimizer.step()
    return total


serve(update)
