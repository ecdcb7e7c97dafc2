"""hardware.importers: recordings made of sets in other formats.

One call, `import_recording`, for every format; each format is a module with `detect` and `read` (see
`importing.FORMATS`): LeRobotDataset v2.1 and v3.0, folders of parquet files with pictures inside, ALOHA-style
HDF5, the HDF5 of LeWM and stable-worldmodel. Units are declared, counts compared, videos and JPEGs never
encoded again.
"""

from hardware.importers.importing import ImportReport, import_recording, open_source

__all__ = ["ImportReport", "import_recording", "open_source"]
