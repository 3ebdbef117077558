"""A detector's file as a user names it; light to import."""

from pathlib import Path

from anchorscope.files.faults import check_file


def check_detector_file(path: Path | str) -> None:
    check_file(path, "name a detector, such as results/detectors/mine.safetensors")
