#!/usr/bin/env python3
"""Makes tiny-b, a small DeepSeek-V3 model with random weights, or tiny-c, a DeepSeek-V2, and what HuggingFace transformers computes from it.

    python make_model.py tiny-b        # needs torch and transformers; a CPU is enough

The same versions on a CPU give the same weights. What is recorded is transformers' own: nothing of Dodona is used here.
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

PROMPT, DECODE, BATCH = 37, 8, 2

SMALL = dict(
    dtype="bfloat16",
    vocab_size=128,
    hidden_size=64,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    n_routed_experts=8,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    v_head_dim=128,
    qk_nope_head_dim=128,
    n_group=4,
    topk_group=2,
    num_experts_per_tok=3,
    first_k_dense_replace=1,
    max_position_embeddings=163840,
)


def yarn(mscale):
    return {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 40.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": mscale,
        "mscale_all_dim": mscale,
        "original_max_position_embeddings": 4096,
    }


# R1's head dimensions and routing; two layers (one dense, one MoE), everything else as small as it goes. Likewise V2's routing, two shared
# experts, no low-rank q as in V2-Lite.
MODELS = {
    "tiny-b": lambda: transformers.DeepseekV3Config(
        architectures=["DeepseekV3ForCausalLM"],
        num_nextn_predict_layers=0,
        n_shared_experts=1,
        routed_scaling_factor=2.5,
        q_lora_rank=48,
        rope_parameters=yarn(1.0),
        **SMALL,
    ),
    "tiny-c": lambda: transformers.DeepseekV2Config(
        architectures=["DeepseekV2ForCausalLM"],
        topk_method="group_limited_greedy",
        n_shared_experts=2,
        routed_scaling_factor=4.0,
        q_lora_rank=None,
        rope_parameters=yarn(0.707),
        **SMALL,
    ),
}
CLASSES = {"deepseek_v2": transformers.DeepseekV2ForCausalLM, "deepseek_v3": transformers.DeepseekV3ForCausalLM}


def draw_weights(model, generator):
    """Values of bf16: matrices that keep the size of what goes through them, norm weights around 1, a correction bias that decides."""
    for name, tensor in sorted(model.state_dict().items()):
        normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if name.endswith("norm.weight") or "layernorm" in name:
            value = 1 + 0.2 * normal
        elif name.endswith("e_score_correction_bias"):
            value = 0.2 * normal
        elif "embed_tokens" in name:
            value = normal
        else:
            value = 1.5 * normal / tensor.shape[-1] ** 0.5
        tensor.copy_(value.to(torch.bfloat16).to(tensor.dtype))


class Gates:
    """What the router of each MoE layer gave, in the calls of one forward pass."""

    def __init__(self, model):
        self.given = {}
        for index, layer in enumerate(model.model.layers):
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.register_forward_hook(lambda module, inputs, output, index=index: self.given.__setitem__(index, output))


def margin(gates, model):
    """The smallest distance of a choice of the routers from another one: rounding must not decide."""
    smallest, config = float("inf"), model.config
    for index, (logits, _, chosen) in gates.items():
        if config.model_type == "deepseek_v2":
            scores, of_group = logits.double().softmax(-1), 1
        else:
            scores, of_group = logits.double().sigmoid() + model.model.layers[index].mlp.gate.e_score_correction_bias, 2
        groups = scores.view(len(scores), config.n_group, -1).topk(of_group, dim=-1)[0].sum(-1).sort(descending=True)[0]
        smallest = min(smallest, (groups[:, config.topk_group - 1] - groups[:, config.topk_group]).min().item())
        for row, ids in zip(scores, chosen):
            kept = row.view(config.n_group, -1).topk(of_group, dim=-1)[0].sum(-1).topk(config.topk_group)[1]
            size = config.n_routed_experts // config.n_group
            candidates = [i for g in kept.tolist() for i in range(g * size, (g + 1) * size)]
            least = min(row[i].item() for i in ids.tolist())
            others = [row[i].item() for i in candidates if i not in ids.tolist()]
            if others:
                smallest = min(smallest, least - max(others))
    return smallest


def main(folder):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(20251121)
    config = MODELS[pathlib.Path(folder).name]()
    model = CLASSES[config.model_type]._from_config(
        config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float64
    ).eval()
    with torch.no_grad():
        draw_weights(model, generator)
        ids = torch.randint(2, config.vocab_size, (BATCH, PROMPT), generator=generator)
        gates = Gates(model)
        run = model(ids, output_hidden_states=True, use_cache=True)
        expected = {"input_ids": ids, "f64.logits": run.logits}
        for i, hidden in enumerate(run.hidden_states):
            expected[f"f64.hidden.{i}"] = hidden
        for layer, outputs in gates.given.items():
            for i, value in enumerate(outputs):
                expected[f"f64.gate.{layer}.{i}"] = value
        print("smallest margin of a choice:", margin(gates.given, model))

        cache, token, tokens, logits = run.past_key_values, run.logits[:, -1].argmax(-1, keepdim=True), [], []
        for _ in range(DECODE):
            tokens.append(token)
            step = model(token, past_key_values=cache, use_cache=True)
            logits.append(step.logits)
            best = step.logits[:, -1].topk(2)[0]
            print("decode margins:", (best[:, 0] - best[:, 1]).tolist(), "routers:", margin(gates.given, model))
            token = step.logits[:, -1].argmax(-1, keepdim=True)
        expected["f64.decode.tokens"] = torch.cat(tokens, 1)
        expected["f64.decode.logits"] = torch.cat(logits, 1)

        folder = pathlib.Path(folder)
        model.to(torch.bfloat16).save_pretrained(folder)
        about = {"torch": torch.__version__, "transformers": transformers.__version__, "device": "cpu"}
        save_file({name: value.contiguous() for name, value in expected.items()}, folder / "expected.safetensors", about)


if __name__ == "__main__":
    main(sys.argv[1])
