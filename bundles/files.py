"""What lies in /tmp, as both sides look at it: files of the tests and of the program are kept alike."""

import os

DIRECTORY = "/tmp"
# Bounds of what one message carries of files.
MAX_FILES, MAX_BYTES = 200, 4 << 20


def look():
    """Every file and directory below /tmp, with a mark that differs after a change."""
    found = {}
    waiting = [DIRECTORY]
    while waiting and len(found) < 10 * MAX_FILES:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    found[entry.path] = True
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found
