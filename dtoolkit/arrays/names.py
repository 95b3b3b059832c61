"""Names of the functions that have a distributed form, and what NumPy and torch call them."""

from __future__ import annotations

__all__ = ["ELEMENTWISE", "NUMPY_NAMES", "REDUCING", "ROWWISE", "TORCH_NAMES"]

# Functions of torch that work element by element, under torch's names.
_ONE_BY_ONE = (
    "abs acos acosh add angle asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or "
    "bitwise_xor ceil conj_physical copysign cos cosh deg2rad div elu eq erf erfc erfinv exp exp2 "
    "expm1 floor floor_divide fmax fmin fmod ge gelu gt heaviside hypot isfinite isinf isnan "
    "le leaky_relu log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or "
    "logical_xor logit lt maximum minimum mul nan_to_num ne neg positive pow rad2deg real "
    "reciprocal relu relu6 remainder round rsqrt sgn sigmoid signbit silu sin sinc sinh softplus "
    "sqrt square sub tan tanh true_divide trunc where xlogy"
)
_REDUCTIONS = "sum prod mean any all min max amin amax argmin argmax var std count_nonzero"
ELEMENTWISE = frozenset(_ONE_BY_ONE.split())
REDUCING = frozenset(_REDUCTIONS.split())
# Along the columns of each row, which lie on one rank.
ROWWISE = frozenset({"softmax", "log_softmax", "cumsum", "cumprod"})

NUMPY_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "bitwise_invert": "bitwise_not",
    "concat": "concatenate",
    "conj": "conj_physical",
    "conjugate": "conj_physical",
    "degrees": "rad2deg",
    "divide": "true_divide",
    "equal": "eq",
    "fabs": "abs",
    "float_power": "pow",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "less": "lt",
    "less_equal": "le",
    "linalg.matmul": "matmul",
    "linalg.norm": "norm",
    "linalg.vector_norm": "norm",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "permute_dims": "transpose",
    "power": "pow",
    "radians": "deg2rad",
    "rint": "round",
    "sign": "sgn",
    "subtract": "sub",
}
TORCH_NAMES = {
    "absolute": "abs",
    "arctan2": "atan2",
    "cat": "concatenate",
    "clone": "copy",
    "concat": "concatenate",
    "conj": "conj_physical",
    "divide": "div",
    "floordiv": "floor_divide",
    "linalg_norm": "norm",
    "linalg_vector_norm": "norm",
    "matrix_norm": "norm",
    "mm": "matmul",
    "mul": "mul",
    "multiply": "mul",
    "mv": "matmul",
    "negative": "neg",
    "sign": "sgn",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_xlogy": "xlogy",
    "subtract": "sub",
    "t": "transpose",
    "truediv": "true_divide",
}
