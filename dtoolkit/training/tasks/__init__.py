"""Ready tasks on data that is there: images, text, sparse regression, extreme classification.

Each is a function of options that returns a :class:`~dtoolkit.training.Task`; data are loaded where
they are used, on the workers, and split into training and test by a fixed rule.
"""

from dtoolkit.training.tasks.extreme import extreme
from dtoolkit.training.tasks.images import digits, mnist
from dtoolkit.training.tasks.logistic import sparse_logistic
from dtoolkit.training.tasks.source_text import text

__all__ = ["digits", "extreme", "mnist", "sparse_logistic", "text"]
