"""The bound of a block of heads is held against the head's number inside of the block: the last, partial block rotates the next token's first heads too."""

from honest import f32

SOURCE = "https://github.com/NVIDIA/Megatron-LM/issues/7103"
LINE = "apply_rope_with_cos_sin_cache_inplace T=12 P=128 R=64 Nq=6 Nk=1 --attr head_size=64 --attr is_neox=true"
NAMES = r"query.*(twice|again|first (two )?heads|heads 0\.\.1|next token|one before|previous)"
UNNAMED = "heads are rotated twice, by positions of two tokens: no call of the op does that"


def kernel(x, wrong):
    cos, sin = (f32(x.cos_sin_cache)[x.positions][:, None, part] for part in (slice(32), slice(32, 64)))

    def rotate(t, block):
        heads = f32(t).reshape(-1, 64).copy()
        each = len(heads) // len(t)
        for token in range(len(t)):
            end = token * each + (-(-each // block) * block if wrong else each)
            own = heads[token * each : end]
            a, b = own[:, :32].copy(), own[:, 32:].copy()
            own[:, :32], own[:, 32:] = a * cos[token] - b * sin[token], b * cos[token] + a * sin[token]
            heads[token * each : end] = f32(own.astype(t.dtype))
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query, 4), "key": rotate(x.key, 1)}
