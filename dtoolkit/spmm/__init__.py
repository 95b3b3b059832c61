"""The product: plans, covers, local kernels and their execution on the ranks."""

from dtoolkit.spmm.autograd import spmm
from dtoolkit.spmm.comparison import compare_partitions
from dtoolkit.spmm.distribute import distribute
from dtoolkit.spmm.execute import product
from dtoolkit.spmm.kernels import LocalCSR
from dtoolkit.spmm.multiply import RedistributionWarning, multiply
from dtoolkit.spmm.operand import Operand
from dtoolkit.spmm.plan import Plan, plan
from dtoolkit.spmm.rate import local_product, small_product
from dtoolkit.spmm.scaling import scaling

__all__ = [
    "LocalCSR",
    "Operand",
    "Plan",
    "RedistributionWarning",
    "compare_partitions",
    "distribute",
    "local_product",
    "multiply",
    "plan",
    "product",
    "scaling",
    "small_product",
    "spmm",
]
