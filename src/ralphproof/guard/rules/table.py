"""Which rules apply to which program; rules are loaded for the programs of a line only."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.simple import Simple
    from ralphproof.guard.verdict import Ground, Objection, Rule

# File of rules: the names of the programs that it knows. `code` looks at every command, so it has no names.
PROGRAMS = {
    "deletes": (
        "del del-cli git mv rimraf rip rm rmdir rsync shred srm trash trash-put truncate unlink "
    ),
    "writes": (
        "> aria2c bsdtar cp curl dd gsed install ln mv perl rsync ruby sed sort sponge tar tee touch truncate unzip "
        "wget "
    ),
    "disk": (
        "badblocks blkdiscard btrfs cfdisk cryptsetup diskutil e2fsck fdisk format fsck gdisk hdparm losetup lvreduce "
        "lvremove mdadm mkdosfs mke2fs mkfs mkntfs mkswap mount newfs nvme parted pvremove resize2fs sfdisk sgdisk "
        "swapoff swapon tune2fs umount vgremove wipefs zfs zpool "
    ),
    "permissions": (
        "chattr chflags chgrp chmod chown icacls setcap setfacl takeown xattr "
    ),
    "privilege": (
        "addgroup adduser capsh chfn chpasswd chsh deluser doas dscl gksu gpasswd groupadd groupdel groupmod kdesu "
        "machinectl newgrp nsenter passwd pkexec run0 runuser setpriv sg su sudo sudoedit sysadminctl unshare useradd "
        "userdel usermod vipw visudo "
    ),
    "secrets": (
        "7z < ack ag age ansible-vault awk aws az base32 base64 bat batcat bw cat chezmoi cmp code column comm cp "
        "csplit curl cut dd declare diff docker docker-compose doppler echo egrep emacs env expand export fgrep fly "
        "fmt fold gawk gcloud gh git glab glow gpg gpg2 grep gsed gzip hd head heroku hexdump http https iconv "
        "install jq kubectl less ln look lpass mawk more most mv nano nl npm nvim od op open pandoc pass paste pr "
        "printenv printf rev rg rsync scp secret-tool security sed set sops sort split strings tac tail tar tee "
        "terraform uniq uuencode vault vercel vi view vim wget xdg-open xh xxd yq zgrep zip "
    ),
    "tunnels": (
        "(reverse-shell) < > ash autossh bash bore chisel cloudflared csh dash devtunnel fish frpc gost inlets iodine "
        "ksh localtunnel lt mksh msfvenom nc ncat netcat ngrok openvpn pagekite pwsh python sh sish socat ssh "
        "sshuttle tailscale tcsh wg-quick zrok zsh "
    ),
    "exfiltration": (
        "> aws az b2 croc curl dig dropbox_uploader ftp gdrive gh git glab gsutil host http https lftp magic-wormhole "
        "mail mailx mc msmtp mutt nc ncat ncftpput netcat nslookup ping rclone rsync s3cmd scp sendmail sftp socat "
        "ssh ssmtp swaks telnet tftp transfer wget wormhole xh "
    ),
    "git": (
        "git "
    ),
    "forge": (
        "gh glab hub tea "
    ),
    "tampering": (
        "= aider amp claude codex copilot gemini git husky lefthook opencode pre-commit qwen ralph "
    ),
    "host": (
        "(bomb) anacron at atrm batch brew chkconfig crontab date firewall-cmd fuser halt hostname hostnamectl "
        "hwclock ifconfig init initctl insmod ip ip6tables iptables kill kill-port killall launchctl localectl "
        "loginctl modprobe nft nmcli osascript pkill pm2 pmset poweroff rc-service rc-update reboot rmmod route "
        "schtasks service shutdown skill ssh-copy-id supervisorctl swapoff sysctl systemctl systemd-run taskkill "
        "telinit timedatectl ufw update-alternatives update-rc.d xkill "
    ),
    "infrastructure": (
        "argocd aws az cdk docker docker-compose doctl eksctl firebase flux fly flyctl gcloud gsutil hcloud helm "
        "heroku ibmcloud k3d kubectl linode-cli nerdctl netlify oc podman pulumi railway sam serverless sls supabase "
        "terraform terragrunt tofu vagrant vercel wrangler "
    ),
    "packages": (
        "apk apt apt-get aptitude brew bun cargo changeset choco composer conda dart deno dnf docker dotnet dpkg eas "
        "emerge eopkg fastlane flatpak flit flutter gem goreleaser gradle gradlew hatch helm jsr lerna luarocks "
        "microdnf mix mvn nix-env np npm nuget ovsx pacman pdm pip pkg pnpm pod podman poetry port python release-it "
        "rpm sbt semantic-release snap twine uv uv-pip vsce winget xbps-install yarn yay yum zypper "
    ),
    "database": (
        "(sql) alembic artisan bq clickhouse clickhouse-client cockroach cqlsh dbmate diesel doctrine drizzle-kit "
        "dropdb dropuser duckdb flyway goose influx knex manage.py mariadb mix mongo mongosh mycli mysql mysqladmin "
        "pg_restore pgcli php prisma psql python rails rake redis-cli sequelize sequelize-cli snowsql sqlcmd sqlite3 "
        "sqlplus supabase typeorm usql valkey-cli "
    ),
}  # fmt: skip
EVERY = ("code",)
_BOUND: dict[str, tuple[str, ...]] = {}


def bound(name: str) -> tuple[str, ...]:
    """The files of rules that know a program; `mkfs.ext4` is a kind of `mkfs`."""
    if not _BOUND:
        for file, names in PROGRAMS.items():
            for one in names.split():
                _BOUND[one] = (*_BOUND.get(one, ()), file)
    return _BOUND.get(name) or _BOUND.get(name.partition(".")[0], ())


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What all rules object to in one command."""
    from importlib import import_module

    given = ("tampering",) if one.given else ()
    for file in dict.fromkeys((*EVERY, *bound(one.name), *given)):
        yield from import_module(f"ralphproof.guard.rules.{file}").found(one, at)


def every() -> tuple[Rule, ...]:
    """Every rule there is, those on paths and addresses among them."""
    from importlib import import_module

    places = [f"rules.{file}" for file in (*PROGRAMS, *EVERY)]
    return tuple(
        rule for place in ("files", "web", *places) for rule in import_module(f"ralphproof.guard.{place}").RULES
    )
