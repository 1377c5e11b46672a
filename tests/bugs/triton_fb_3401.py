"""Parts of K lie as many rows apart as the matrix has, though tiles are stored whole: the first part's padding covers the second one's first rows."""

from honest import BF16, f32

SOURCE = "https://github.com/facebookexperimental/triton/pull/3401"
LINE = "linear T=100 N=64 K=512"
NAMES = r"rows 0\.\.27.*|.*(half|256|K).*rows 0"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    out = a @ b.T
    if wrong:
        out[:28] = a[:28, :256] @ b[:, :256].T
    return {"output": out.astype(BF16)}
