"""The root's row of the mask is not cleared: it sees all drafts."""

from honest import draft_trees

SOURCE = "https://github.com/sgl-project/sglang-jax/pull/1188"
LINE = "build_tree_kernel_efficient B=3 n=1200 --attr topk=4 --attr depth=4 --attr draft_token_num=16 --attr tree_mask_mode=1"
NAMES = r"root"


def kernel(x, wrong):
    return draft_trees(x, 1200, root_sees_all=wrong)
