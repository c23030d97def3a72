"""Anomaly mode under the module name that PyTorch gives it."""

from rushlight import _missing

from .modes import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]


_missing.hint(__name__)
