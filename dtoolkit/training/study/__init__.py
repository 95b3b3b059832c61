"""Scaling studies: model size x workers x stage x micro-batch x learning rate."""

from dtoolkit.training.study.cost import Estimate, estimate
from dtoolkit.training.study.device import DEVICES, Device
from dtoolkit.training.study.plan import Planned, StudyPlan
from dtoolkit.training.study.planning import plan_study
from dtoolkit.training.study.result import Study
from dtoolkit.training.study.setting import Setting
from dtoolkit.training.study.sizes import MT5, ModelSize
from dtoolkit.training.study.study import study, submit_study
from dtoolkit.training.study.studying import Studying, StudyProgress
from dtoolkit.training.study.trials import Measurement, Trial

__all__ = [
    "DEVICES",
    "MT5",
    "Device",
    "Estimate",
    "Measurement",
    "ModelSize",
    "Planned",
    "Setting",
    "Study",
    "StudyPlan",
    "StudyProgress",
    "Studying",
    "Trial",
    "estimate",
    "plan_study",
    "study",
    "submit_study",
]
