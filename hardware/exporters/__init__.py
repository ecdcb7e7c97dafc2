"""hardware.exporters: recordings turned into sets of other formats, by those formats' own writers.

`export_lerobot` makes a LeRobotDataset (extra `lerobot`, imported only when it is called).
"""

from hardware.exporters.lerobot import export_lerobot
from hardware.exporters.report import ExportedEpisode, ExportReport

__all__ = ["ExportReport", "ExportedEpisode", "export_lerobot"]
