"""Rules on disks, partitions and file systems."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.simple import Simple, has, split
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

FORMAT = Rule("disk-format", "disk", "makes a new file system where one may be", "work on files of the project")
PARTITION = Rule("disk-partition", "disk", "changes partitions or volumes of a disk", "look with `lsblk` or `df -h`")
ERASE = Rule("disk-erase", "disk", "erases a disk", "work on files of the project")
MOUNT = Rule("disk-mount", "disk", "changes what file systems are mounted", "look with `findmnt` or `df -h`")
RULES = (FORMAT, PARTITION, ERASE, MOUNT)
FORMATS = {"mkfs", "mke2fs", "mkswap", "mkdosfs", "newfs", "mkntfs"}
TABLE: Table = {
    "fdisk": (("!-l|--list", PARTITION),), "cfdisk": (("", PARTITION),),
    "sfdisk": (("!-l|--list|-d|--dump", PARTITION),),
    "gdisk": (("!-l", PARTITION),), "sgdisk": (("!-p|--print", PARTITION),), "parted": (("* *", PARTITION),),
    "wipefs": (("+-a|--all", ERASE),), "blkdiscard": (("", ERASE),), "badblocks": (("+-w", ERASE),),
    "hdparm": (("+--security-erase|--trim-sector-ranges", ERASE),), "nvme": (("format|sanitize", ERASE),),
    "cryptsetup": (("luksFormat|erase|luksErase|reencrypt", FORMAT),),
    "lvremove": (("", PARTITION),), "vgremove": (("", PARTITION),), "pvremove": (("", PARTITION),),
    "lvreduce": (("", PARTITION),), "zpool": (("destroy|labelclear|create", ERASE),),
    "zfs": (("destroy|rollback", ERASE),),
    "btrfs": (("subvolume delete", ERASE), ("device delete|remove", PARTITION)),
    "mdadm": (("+--zero-superblock|--create|--stop|-S|-C", PARTITION),),
    "umount": (("", MOUNT),), "swapoff": (("", MOUNT),), "swapon": (("* ", MOUNT),), "losetup": (("* *", MOUNT),),
    "diskutil": (("erase*|partitionDisk|reformat|secureErase|apfs|unmount*|zeroDisk", ERASE),),
    "resize2fs": (("", PARTITION),), "tune2fs": (("!-l", PARTITION),), "format": (("?:", FORMAT),),
    "fsck": (("", PARTITION),), "e2fsck": (("", PARTITION),),
}  # fmt: skip


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command does to disks. What it writes to their devices is a matter of `writes`."""
    if one.name.partition(".")[0] in FORMATS:
        yield FORMAT.about(shown(one))
    elif one.name == "mount":
        options, words = split(one.words[1:], ("-t", "-o", "--types", "--options"))
        if words or has(options, "-a", "--all"):
            yield MOUNT.about(shown(one))
    else:
        yield from told(one, TABLE, {})
