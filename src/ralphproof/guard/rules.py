"""The rules: of each its category, what it says, and the commands that it objects to; and a project's exceptions.

`command.py` explains the patterns. A rule without patterns, or with more to it than patterns can say, is applied by a
function in `rule_matching.py`, or by `paths.py`.
"""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.command import BOMB, OPAQUE, REMOTE, REVERSE
from ralphproof.guard.verdict import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.verdict import Act, Exceptions, Ground, Objection

# Name of a category, and what it stands for in the documents.
CATEGORIES = {
    "outside-project": "Deleting or overwriting outside the project",
    "project-state": "Deleting the project itself, its history or the loop's state",
    "disk": "Disks, partitions, file systems",
    "permissions": "Blanket permissions and ownership",
    "privilege": "Privilege escalation",
    "remote-code": "Code from elsewhere into an interpreter",
    "opaque-code": "Code that cannot be read before it runs",
    "secrets": "Reading secrets",
    "exfiltration": "Sending data away",
    "tunnels": "Reverse shells, listeners, tunnels",
    "git-history": "Destroying git history or uncommitted work",
    "git-remote": "Destroying what others see of a repository",
    "tampering": "Going round checks, hooks and this guard",
    "host-control": "Processes and services of the machine",
    "persistence": "Things that outlive the run",
    "database": "Destroying data in databases",
    "infrastructure": "Clouds, clusters, containers",
    "packages": "Publishing, and packages of the whole machine",
}
# About this machine and its files: they do not hold for what runs in a container.
OF_THIS_MACHINE = {
    "outside-project",
    "project-state",
    "permissions",
    "privilege",
    "host-control",
    "persistence",
    "packages",
}
RULES: dict[str, Rule] = {}

# Options that are followed by an argument, so that the argument is no operand.
TAKES = {
    "alembic": "-c -n", "apt": "-o -t", "apt-get": "-o -t", "aws": "--profile --region --output --endpoint-url",
    "az": "-g -n --name --resource-group --subscription -f -c --account-name", "cargo": "--manifest-path -p",
    "docker": "-f --context -H --project-name -p --profile --env-file", "docker-compose": "-f -p", "fuser": "-n",
    "gcloud": "--project --zone --region", "gh": "-R --repo --hostname -h", "glab": "-R --repo", "gsutil": "-o -h",
    "git": "-b -B -m -o --push-option --repo -s --source --receive-pack", "helm": "-n --namespace",
    "heroku": "-a --app",
    "kubectl": "-n --namespace --context -f --filename -o --output -l --selector --cluster",
    "mount": "-t -o --types --options", "mvn": "-f -P -pl",
    "mysqladmin": "-u -p -h", "npm": "-w --workspace --prefix --tag --otp", "pip": "-r -c -e", "pnpm": "-C --filter -F",
    "podman": "-f", "poetry": "-C -r", "redis-cli": "-h -p -n -a -u --user", "systemctl": "-H -M -t",
    "terraform": "-chdir", "yarn": "--cwd",
}  # fmt: skip


def _rule(id: str, category: str, reason: str, instead: str, *commands: str) -> None:
    RULES[id] = Rule(id, category, reason, instead, commands)


# Deleting and overwriting

_rule("outside-delete", "outside-project", "deletes what is not part of the project",
      "delete only files of the project")  # fmt: skip
_rule("unknown-delete", "outside-project", "deletes a folder that is not known before it runs",
      "write the folder out, or `${NAME:?}` behind a check that it is in the project")  # fmt: skip
_rule("outside-write", "outside-project", "writes to a place that is not part of the project",
      "write to the project or the temporary folder")  # fmt: skip
_rule("rm-everything", "outside-project", "deletes the whole file system", "delete only files of the project",
      "rm +--no-preserve-root")  # fmt: skip
_rule("wide-link", "outside-project", "makes a link in the project to a folder that holds it, or to the user's home",
      "link to the file or folder that is needed")  # fmt: skip
_rule("project-delete", "project-state", "deletes the project as a whole",
      "name the files or folders that are to go")  # fmt: skip
_rule("git-files", "project-state", "changes what git keeps in .git",
      "use git's own commands, and leave .git alone")  # fmt: skip
_rule("loop-state", "project-state", "removes what the loop that runs you goes by",
      "leave these files where they are")  # fmt: skip
_rule("git-rm-all", "project-state", "removes every file of the project", "name the files that are to go")

# Disks

_rule("device-write", "disk", "writes to a device of the machine", "write to a file of the project")
_rule("disk-format", "disk", "makes a new file system where one may be", "work on files of the project",
      "mkfs|mke2fs|mkswap|mkdosfs|newfs|mkntfs", "cryptsetup luksFormat|erase|luksErase|reencrypt",
      "format ?:")  # fmt: skip
_rule("disk-partition", "disk", "changes partitions or volumes of a disk", "look with `lsblk` or `df -h`",
      "fdisk !-l|--list", "sfdisk !-l|--list|-d|--dump", "gdisk !-l", "sgdisk !-p|--print", "parted * *", "tune2fs !-l",
      "cfdisk|lvremove|vgremove|pvremove|lvreduce|resize2fs|fsck|e2fsck", "btrfs device delete|remove",
      "mdadm +--zero-superblock|--create|--stop|-S|-C")  # fmt: skip
_rule("disk-erase", "disk", "erases a disk", "work on files of the project",
      "wipefs +-a|--all", "blkdiscard", "badblocks +-w", "hdparm +--security-erase|--trim-sector-ranges",
      "nvme format|sanitize", "zpool destroy|labelclear|create", "zfs destroy|rollback", "btrfs subvolume delete",
      "diskutil erase*|partitionDisk|reformat|secureErase|apfs|unmount*|zeroDisk")  # fmt: skip
_rule("disk-mount", "disk", "changes what file systems are mounted", "look with `findmnt` or `df -h`",
      "umount|swapoff", "swapon *", "losetup * *", "mount *", "mount +-a|--all")  # fmt: skip

# Rights

_rule("chmod-everybody", "permissions", "lets every user of the machine write",
      "give the one right that is missing: chmod u+w")  # fmt: skip
_rule("chmod-setuid", "permissions", "lets a program run with its owner's rights", "run it as you are")
_rule("permissions-outside", "permissions", "changes rights on what is not part of the project",
      "change the rights of the project's files only")  # fmt: skip
_rule("chown-tree", "permissions", "gives a whole folder to another user", "change single files, to yourself")
_rule("chmod-nothing", "permissions", "takes all rights from a whole folder", "change single files")
_rule("access-lists", "permissions", "changes access lists, attributes or capabilities", "use chmod on single files",
      "setfacl +-R|--recursive", "setfacl +-b|--remove-all", "setcap|chattr|icacls|takeown|chflags",
      "xattr +-r")  # fmt: skip
_rule("become-root", "privilege", "runs with the rights of another user",
      "run it as you are, or say what needs an administrator",
      "sudoedit|su|doas|pkexec|run0|gksu|kdesu|machinectl|runuser|sg|newgrp")  # fmt: skip
_rule("change-users", "privilege", "changes users, groups or passwords", "say in your answer what should change",
      "visudo|vipw|usermod|useradd|userdel|groupadd|groupmod|groupdel|adduser|addgroup|deluser|passwd|gpasswd|chpasswd",
      "chsh|chfn|dscl|sysadminctl")  # fmt: skip
_rule("enter-namespace", "privilege", "enters or makes a namespace of the system", "run it as you are, without that",
      "nsenter|unshare|capsh|setpriv")  # fmt: skip

# Code that has not been seen

_rule("remote-pipe", "remote-code", "runs code as it comes from elsewhere",
      "save it to a file of the project, read it, and say why it should run", REMOTE)  # fmt: skip
_rule("fetched-script", "remote-code", "runs a file that the same line has brought from elsewhere",
      "read the file before it runs")  # fmt: skip
_rule("run-url", "remote-code", "runs a program straight from an address", "install it as a dependency of the project")
_rule("decoded-code", "opaque-code", "runs code that is decoded or put together on the way",
      "write the commands out, so that they can be read", OPAQUE)  # fmt: skip
_rule("unknown-command", "opaque-code", "runs a command whose name is not known before it runs",
      "write the command out")  # fmt: skip
_rule("eval-unknown", "opaque-code", "runs text that is not known before it runs",
      "write the commands out, without eval")  # fmt: skip
_rule("odd-spelling", "opaque-code", "runs a command whose name is spelled so that nobody can read it",
      "write its name")  # fmt: skip
_rule("unreadable", "opaque-code", "cannot be read as a shell would", "write it as shorter, plain commands")
_rule("unreadable-call", "opaque-code", "has arguments that cannot be judged", "call the tool with plain text")

# Secrets

_rule("secret-file", "secrets", "reads a file that holds secrets",
      "ask for the name of the setting, or read an example file such as .env.example")  # fmt: skip
_rule("cloud-metadata", "secrets", "asks a cloud's metadata service, which hands out credentials", "do without it")
_rule("file-address", "secrets", "reads a file of the machine by its address", "read files of the project by path")
_rule("print-environment", "secrets", "prints the environment, in which secrets stand",
      "ask for one variable that is no secret", "export +-p", "declare +-p !-f", "declare +-x")  # fmt: skip
_rule("print-secret", "secrets", "prints a variable that holds a secret", 'test whether it is set: [ -n "$NAME" ]')
_rule("secret-store", "secrets", "asks a store of secrets for one", "name the setting that is needed in your answer",
      "gpg|gpg2 +--export-secret-keys|--export-secret-subkeys", "gh auth token", "gh|glab auth status +-t|--show-token",
      "aws secretsmanager get-secret-value|batch-get-secret-value", "aws ssm get-parameter* +--with-decryption",
      "aws sts get-session-token|assume-role", "aws configure get|export-credentials", "aws ecr get-login-password",
      "gcloud secrets versions access", "gcloud auth print-access-token|print-identity-token",
      "az keyvault secret show|download", "az account get-access-token", "kubectl get|describe secret|secrets|secret/*",
      "kubectl config view +--raw", "vault kv get", "vault read", "vault print token", "op read|item|document",
      "pass|lpass show", "bw get", "doppler|fly secrets", "security find-*|dump-keychain|export",
      "secret-tool lookup|search", "heroku config*", "vercel env pull", "sops +-d|--decrypt", "npm token list",
      "docker compose config !-q|--quiet|--services|--env-file", "docker-compose config !-q|--quiet|--services",
      "ansible-vault view|decrypt", "terraform output +-json|-raw", "terraform state show|pull", "chezmoi secret",
      "git credential fill", "git credential-store|credential-cache get")  # fmt: skip
_rule("read-home", "secrets", "reads a whole folder in which the user's secrets lie", "read the file that is needed")
_rule("secret-in-git", "secrets", "shows a file of secrets out of git", "read an example file instead")

# Sending data away, and letting others in

_rule("private-address", "exfiltration", "asks an address of the private network around this machine",
      "use public addresses, or localhost for what you have started yourself")  # fmt: skip
_rule("secret-in-address", "exfiltration", "carries a secret away in an address", "leave the secret out")
_rule("upload", "exfiltration", "sends files or their contents to another machine",
      "leave them here, and say what should be sent where", "gh gist create", "glab snippet create")  # fmt: skip
_rule("data-in-query", "exfiltration", "puts contents of files into an address that is asked", "leave them out")
_rule("copy-away", "exfiltration", "copies files to another machine or a store", "leave them here",
      "aws s3 sync|mv", "aws s3 cp * s3://*", "aws s3api put-object", "gsutil cp|rsync|mv",
      "az storage blob|file upload*", "rclone copy|sync|move|copyto|moveto|rcat", "croc|magic-wormhole send",
      "wormhole send|tx", "mc cp|mirror", "s3cmd put|sync", "b2 upload*|sync", "transfer *", "lftp|ftp|tftp|ncftpput",
      "dropbox_uploader upload", "gdrive upload|files")  # fmt: skip
_rule("push-elsewhere", "exfiltration", "pushes the project to a remote that it did not have",
      "push to the project's own remote")  # fmt: skip
_rule("commit-secret", "exfiltration", "puts a file of secrets under version control", "leave it ignored")
_rule("send-mail", "exfiltration", "sends a message away", "write it to a file of the project",
      "mail|mailx|sendmail|mutt|msmtp|swaks|ssmtp")  # fmt: skip
_rule("reverse-shell", "tunnels", "connects a shell to another machine", "run commands here", REVERSE, "msfvenom")
_rule("raw-connection", "tunnels", "opens a raw connection to another machine", "use curl for what is to be fetched")
_rule("listener", "tunnels", "lets other machines in", "listen on 127.0.0.1 only")
_rule("tunnel", "tunnels", "makes a way round the network's borders", "test against 127.0.0.1",
      "ngrok|localtunnel|lt|bore|frpc|inlets|zrok|pagekite|sish|chisel|sshuttle|gost|openvpn|iodine",
      "cloudflared tunnel|access", "tailscale funnel|serve|up", "devtunnel host|create", "wg-quick up")  # fmt: skip

# Git and forges

_rule("git-reset-hard", "git-history", "throws uncommitted work away, and commits with it",
      "commit first; undo with `git revert`, or `git restore FILE` for one file",
      "git reset +--hard|--merge|--keep", "git read-tree +--reset +-u")  # fmt: skip
_rule("git-clean", "git-history", "deletes files that git does not know",
      "look with `git clean -n`, and delete by name",
      "git clean +-f|--force !-n|--dry-run", "git clean +-i", "git submodule deinit +-f|--force")  # fmt: skip
_rule("git-discard", "git-history", "throws all uncommitted changes away", "name single files, or commit first",
      "git switch +--discard-changes|-f|--force", "git checkout-index +-f|--force +-a|--all")  # fmt: skip
_rule("git-stash-drop", "git-history", "throws stashed work away", "leave it in the stash, or `git stash pop`",
      "git stash clear|drop")  # fmt: skip
_rule("git-expire", "git-history", "deletes what git could still bring back", "leave it to git's own schedule",
      "git reflog expire|delete", "git gc +--prune", "git prune !-n|--dry-run", "git lfs prune")  # fmt: skip
_rule("git-rewrite", "git-history", "rewrites the whole history", "add commits that put it right",
      "git filter-branch|filter-repo", "git replace *")  # fmt: skip
_rule("git-branch-delete", "git-history", "deletes a branch that is not merged",
      "use `git branch -d`, which checks that",
      "git branch * +-D", "git branch * +-d|--delete +-f|--force")  # fmt: skip
_rule("git-ref", "git-history", "moves or deletes a reference past all checks", "use `git branch` or `git merge`",
      "git update-ref", "git symbolic-ref * *")  # fmt: skip
_rule("git-worktree-force", "git-history", "deletes a working tree with changes in it",
      "commit them first, without --force", "git worktree remove +-f|--force")  # fmt: skip
_rule("git-push-force", "git-remote", "replaces what others have",
      "push new commits; say so where history must change",
      "git push +-f|--force|--force-with-lease|--mirror")  # fmt: skip
_rule("git-push-delete", "git-remote", "deletes what others have", "leave remote branches and tags alone",
      "git push +-d|--delete|--prune")  # fmt: skip
_rule("forge-repository", "git-remote", "deletes, hides or opens a whole repository",
      "say in your answer what should change",
      "gh repo delete|archive|rename", "gh repo edit +--visibility|--default-branch", "hub delete",
      "glab repo|project delete|archive|transfer", "tea repos delete")  # fmt: skip
_rule("forge-release", "git-remote", "deletes what has been released", "make a new release instead",
      "gh release delete|delete-asset", "gh issue delete|transfer", "gh gist|run|label|cache delete",
      "glab release|mr delete", "hub release delete")  # fmt: skip
_rule("forge-merge", "git-remote", "merges past the rules of the repository",
      "open a pull request and leave it to review", "gh pr merge +--admin", "glab mr merge +--yes|-y")  # fmt: skip
_rule("forge-access", "git-remote", "changes keys, secrets, workflows or rights of a repository",
      "say in your answer what is needed",
      "gh repo deploy-key add|delete", "gh secret|variable set|delete|remove", "gh workflow disable",
      "gh ssh-key|gpg-key add|delete", "gh ruleset delete", "gh auth login|logout|refresh",
      "glab variable set|delete", "glab ssh-key add|delete")  # fmt: skip
_rule("forge-api", "git-remote", "changes a repository through the forge's interface",
      "use the command that is made for it")  # fmt: skip

# Going round checks

_rule("hook-write", "tampering", "changes git's hooks or settings, which check the work",
      "leave hooks as they are, and make the work pass them")  # fmt: skip
_rule("agent-settings", "tampering", "changes the settings of the agent or of the loop that runs it",
      "say in your answer which setting should change, and why")  # fmt: skip
_rule("protected-path", "tampering", "changes a path that this project protects",
      "do the work without it, or say in your answer why it should change")  # fmt: skip
_rule("no-verify", "tampering", "keeps git from running the project's hooks", "make the work pass the hooks")
_rule("git-setting-runs", "tampering", "sets something that git will execute", "leave git's settings as they are")
_rule("git-blind", "tampering", "hides changes of a file from git", "commit the change, or leave the file alone",
      "git update-index +--assume-unchanged|--skip-worktree")  # fmt: skip
_rule("hooks-off", "tampering", "turns the project's hooks off", "make the work pass the hooks",
      "pre-commit|husky|lefthook uninstall")  # fmt: skip
_rule("unguarded-agent", "tampering", "starts an agent without any guard", "do the work yourself",
      "claude +--dangerously-skip-permissions|--allow-dangerously-skip-permissions", "claude mcp add*|remove",
      "codex +--dangerously-bypass-approvals-and-sandbox|--yolo|--full-auto", "gemini|qwen +--yolo|-y",
      "opencode +--yolo|--auto", "amp +--dangerously-allow-all", "copilot +--allow-all|--allow-all-tools|--yolo",
      "aider +--yes-always", "ralph run|stories|work|supervise|resume +--no-sandbox", "ralph config set")  # fmt: skip
_rule("search-path", "tampering", "lets files of the current folder stand in for programs",
      "give the path of the program")  # fmt: skip
_rule("preload", "tampering", "puts other code into every program that it runs", "run the program as it is",
      "= LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES|BASH_ENV|PROMPT_COMMAND ?*")  # fmt: skip
_rule("denied-here", "tampering", "is on this project's list of what is denied", "do without it")

# The machine

_rule("kill-everything", "host-control", "ends processes that you did not start",
      'end your own: kill "$!" or kill %1')  # fmt: skip
_rule("kill-by-name", "host-control", "ends every process of a name, whoever started it",
      'end your own by its number: kill "$!"',
      "killall !-l|--list|-0", "pkill !-l|-0", "skill|xkill|taskkill|kill-port", "fuser +-k|--kill")  # fmt: skip
_rule("power", "host-control", "stops or restarts the machine", "leave it running",
      "shutdown|reboot|halt|poweroff", "init 0|1|6|s", "telinit 0|1|6", "pmset sleepnow",
      "osascript *shut?down*|*restart*|*log?out*")  # fmt: skip
_rule("service", "host-control", "stops, starts or changes services of the machine", "look with `systemctl status`",
      "systemctl stop|restart|kill|reload|mask|isolate|start|disable|daemon-reexec|set-property|poweroff|reboot|halt",
      "systemctl suspend|try-restart", "loginctl terminate*|kill*", "service * stop|start|restart|reload",
      "rc-service * stop|start|restart", "brew services start|stop|restart",
      "launchctl stop|unload|kill|bootout|remove|disable", "initctl stop|start|restart",
      "supervisorctl stop|shutdown|restart")  # fmt: skip
_rule("system-settings", "host-control", "changes settings of the system", "set what you need for your own command",
      "sysctl +-w|--write", "sysctl *=*", "sysctl +-p", "iptables|ip6tables !-L|--list|-S", "nft add|delete|flush",
      "ufw enable|disable|reset|delete|allow|deny", "firewall-cmd !--list-all", "modprobe|rmmod|insmod",
      "hostnamectl set*|hostname", "timedatectl|localectl set*", "hwclock +-w|-s|--set|--systohc", "date +-s|--set",
      "ip link|addr|address|route|rule set|add|del|delete|flush|change|replace", "ifconfig * *", "route add|del",
      "hostname * !-f|-i|-I|-s", "nmcli * down|off|delete|modify",
      "update-alternatives +--set|--install|--config")  # fmt: skip
_rule("fork-bomb", "host-control", "starts processes without end", "start what you need, once", BOMB)
_rule("startup-write", "persistence", "changes what is run when a user logs in or the machine starts",
      "set what you need for this command alone, or in a script of the project")  # fmt: skip
_rule("schedule", "persistence", "has something run later, or again and again",
      "run it now, or put it into a script of the project",
      "crontab !-l", "at !-l|-q", "batch|atrm|anacron|schtasks",
      "systemd-run +--on-calendar|--on-active|--on-boot")  # fmt: skip
_rule("start-with-system", "persistence", "has something run when the machine or a session starts",
      "start it when it is needed",
      "systemctl enable|reenable|preset|link|edit", "loginctl enable-linger", "launchctl load|bootstrap|enable|submit",
      "pm2 startup|save", "update-rc.d", "chkconfig * on|off", "rc-update add|del")  # fmt: skip
_rule("install-key", "persistence", "lets a key in", "leave access as it is", "ssh-copy-id")

# Databases

_rule("sql-drop", "database", "drops tables, schemas or whole databases",
      "write a migration, and try it on a test database",
      "dropdb|dropuser", "mysqladmin drop", "pg_restore +-c|--clean", "influx bucket delete")  # fmt: skip
_rule("sql-all-rows", "database", "changes or deletes every row of a table", "add a WHERE that names the rows")
_rule("store-flush", "database", "empties a whole data store", "delete single keys or documents",
      "redis-cli|valkey-cli [Ff][Ll][Uu][Ss][Hh][Aa][Ll][Ll]|[Ff][Ll][Uu][Ss][Hh][Dd][Bb]")  # fmt: skip
_rule("schema-reset", "database", "drops and rebuilds a database", "migrate forward, or set the test environment",
      "prisma migrate reset", "prisma db push +--force-reset|--accept-data-loss",
      "sequelize-cli|sequelize db:drop|db:migrate:undo:all", "rails|rake db:drop*|db:reset*|db:purge*",
      "rails db:schema:load*", "artisan migrate:fresh|migrate:reset|db:wipe|migrate:refresh", "alembic downgrade base",
      "mix ecto.drop|ecto.reset", "typeorm schema:drop", "knex migrate:rollback +--all",
      "manage.py flush|reset_db|sqlflush", "flyway clean", "diesel database reset|drop", "supabase db reset",
      "dbmate drop", "goose * * reset", "drizzle-kit drop", "doctrine database:drop|schema:drop")  # fmt: skip
_rule("sql-file-drop", "database", "runs a file of SQL whose name says that it destroys",
      "show what is in it, and run a migration")  # fmt: skip

# Clouds and containers

_rule("iac-destroy", "infrastructure", "destroys infrastructure that is described in code",
      "show what would happen: `plan`, `preview`",
      "terraform|tofu|terragrunt destroy|force-unlock|taint", "terraform|tofu|terragrunt apply +-destroy|--destroy",
      "terraform|tofu|terragrunt state rm|push|mv|replace-provider", "terraform|tofu|terragrunt workspace delete",
      "terraform|tofu|terragrunt run-all destroy", "pulumi destroy", "pulumi stack rm", "cdk|vagrant destroy",
      "sam delete", "serverless|sls remove")  # fmt: skip
_rule("iac-apply", "infrastructure", "changes infrastructure without asking",
      "show what would happen: `plan`, `preview`",
      "terraform|tofu|terragrunt apply +-auto-approve|--auto-approve", "terraform|tofu|terragrunt run-all apply",
      "pulumi up +-y|--yes", "cdk deploy +--require-approval")  # fmt: skip
_rule("cluster-delete", "infrastructure", "deletes or stops what runs in a cluster",
      "look with `kubectl get` or `kubectl diff`",
      "kubectl delete|drain|cordon|taint", "kubectl scale +--replicas=0", "kubectl replace +--force",
      "kubectl rollout undo", "oc|eksctl delete", "helm uninstall|delete|rollback", "k3d cluster delete",
      "flux uninstall|delete", "argocd app delete")  # fmt: skip
_rule("cloud-delete", "infrastructure", "deletes what is in a cloud", "look with the list and describe commands",
      "aws s3 rb", "aws s3 rm +--recursive", "aws * delete-*|terminate-*|stop-*|deregister-*|purge-*",
      "aws * schedule-key-deletion|disable-*|put-bucket-policy", "aws iam attach-*|create-access-key|put-*",
      "gcloud * delete|stop|reset", "gcloud * * delete|stop|reset", "gcloud|az * * * delete", "gsutil rm|rb",
      "az * delete|purge|stop|deallocate", "az * * delete|purge", "doctl|wrangler|linode-cli|hcloud * delete",
      "doctl * * delete", "heroku apps:destroy|*:destroy|pg:reset|ps:scale|addons:destroy|*:remove",
      "fly|flyctl apps|volumes|machine destroy|delete", "fly|flyctl destroy", "vercel remove|rm", "vercel * rm|remove",
      "netlify sites:delete|*:unset", "wrangler delete", "railway down|delete", "firebase *:delete|hosting:disable",
      "supabase projects delete", "ibmcloud * *-delete")  # fmt: skip
_rule("container-data", "infrastructure", "deletes data or containers that others may use",
      "remove your own containers by name",
      "docker|podman|nerdctl system|volume|image|container|network|builder prune +-f|--force",
      "docker|podman|nerdctl system prune", "docker|podman|nerdctl volume rm|remove|prune",
      "docker|podman|nerdctl compose down +-v|--volumes", "docker|podman|nerdctl compose rm +-v",
      "docker|podman|nerdctl stack|service|secret|swarm rm|remove|leave", "docker|podman|nerdctl context rm",
      "docker-compose down +-v|--volumes", "docker-compose rm +-v")  # fmt: skip
_rule("container-breakout", "infrastructure", "gives a container the rights of the machine",
      "mount the project only, without more rights")  # fmt: skip
_rule("container-mount", "infrastructure", "gives a container the machine's files",
      'mount the project only: -v "$PWD:/app"')  # fmt: skip

# Packages

_rule("publish", "packages", "publishes for everybody to see",
      "build without publishing: `--dry-run`, `npm pack`, `twine check`",
      "npm|pnpm|yarn|bun publish !--dry-run|-n", "npm|pnpm|yarn|bun npm publish", "twine upload",
      "cargo publish !--dry-run|-n", "poetry|uv|jsr|deno publish !--dry-run", "flit|hatch|pdm|lerna|changeset publish",
      "gem push", "semantic-release !-d|--dry-run", "np", "release-it !--dry-run",
      "mvn deploy|*:deploy|release:perform", "mvn * deploy", "gradlew|gradle publish*|uploadArchives",
      "dotnet nuget push|delete", "nuget push|delete", "docker|podman|helm push", "docker image|compose push",
      "vsce publish|unpublish", "ovsx publish", "goreleaser release !--snapshot|--skip=publish", "mix hex.publish",
      "luarocks upload", "pod trunk push|delete", "eas submit", "fastlane deliver|supply|release",
      "dart|flutter pub publish !--dry-run", "sbt publish*")  # fmt: skip
_rule("unpublish", "packages", "takes back or moves what others depend on", "publish a new version, by hand",
      "npm|pnpm|yarn|bun unpublish|deprecate|login|adduser|logout",
      "npm|pnpm|yarn|bun dist-tag|tag add|rm|remove", "npm|pnpm|yarn|bun owner|access add|rm|grant|revoke",
      "npm|pnpm|yarn|bun token create|revoke", "cargo yank|owner|login", "gem yank|owner")  # fmt: skip
_rule("global-package", "packages", "installs or removes packages of the whole machine",
      "install into the project: a virtual environment, node_modules",
      "npm|pnpm|yarn|bun install|i|add|uninstall|un|remove|rm|update|link|ci +-g|--global|--location=global",
      "npm|pnpm|yarn|bun global add|remove|upgrade", "pip install|uninstall +--break-system-packages",
      "composer global require|remove|update", "conda remove|uninstall +-n")  # fmt: skip
_rule("system-package", "packages", "changes the packages of the system", "say which package is missing",
      "apt|apt-get|aptitude install|remove|purge|autoremove|upgrade|dist-upgrade|full-upgrade|reinstall",
      "dnf|yum|microdnf|zypper install|remove|erase|update|upgrade|downgrade|reinstall|autoremove|group*|swap",
      "dpkg +-i|-r|-P|--install|--remove|--purge", "rpm +-i|-e|-U|-F", "pacman +-S|-R|-U", "yay +-S|-R",
      "apk add|del|upgrade|fix", "emerge|xbps-install", "snap install|remove|refresh",
      "flatpak install|uninstall|update", "port|winget|choco install|uninstall", "eopkg install|remove",
      "brew install|uninstall|remove|rm|upgrade|tap|untap|cleanup|reinstall|link|unlink", "nix-env +-i|-e|-u",
      "pkg install|remove|delete")  # fmt: skip
_rule("package-source", "packages", "takes packages from another place than the usual one",
      "use the project's own package index",
      "npm|pnpm|yarn|bun config|c set registry*|*:registry*", "pip config set *index*",
      "poetry source add")  # fmt: skip

# The project's own lists: what the guard lets pass, and what it refuses beside its own rules. An entry is the id of a
# rule, the name of a category, or a command. Of a command every word counts, as it is written or with `*` for any
# characters in it. What is allowed is the whole command, unless its last word is `*`; what is denied is whatever
# begins so. A tool other than a shell is a command of its name and its path or address: `Read .env`.

OPERATORS = r"[;&|<>()`\n]|\$\("
MAX_ENTRY_CHARS = 1000
SIMILARITY = 0.84


def is_denied(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project refuses this, whatever the rules say."""
    return any(_describes(entry, way, at, whole=False) for entry in lists.deny for way in act.ways)


def is_allowed(act: Act, lists: Exceptions, at: Ground) -> bool:
    """Whether the project lets this very command pass; others of the same line stand for themselves."""
    return any(_describes(entry, way, at, whole=True) for entry in lists.allow for way in act.ways)


def is_waived(objection: Objection, lists: Exceptions) -> bool:
    """Whether the rule, or its whole category, does not hold in this project. What is denied by name holds."""
    named = {objection.rule, objection.category}
    return bool(named & set(lists.allow)) and not named & set(lists.deny)


def _describes(entry: str, words: Sequence[str], at: Ground, whole: bool) -> bool:
    """Whether an entry is a command, and these words are it."""
    if entry in CATEGORIES or entry in RULES:
        return False
    import shlex

    try:
        pattern = shlex.split(entry)
    except ValueError:
        return False
    more = pattern[-1:] == ["*"]
    wanted = pattern[:-1] if more else pattern
    if not pattern or len(words) < len(wanted) or (whole and not more and len(words) > len(wanted)):
        return False
    return all(_is_same(part, word, at) for part, word in zip(wanted, words, strict=False))


def _is_same(part: str, word: str, at: Ground) -> bool:
    part, word = (at.home + one[1:] if one == "~" or one.startswith("~/") else one for one in (part, word))
    return fnmatch.fnmatchcase(word, part.replace("[", "[[]").replace("?", "[?]"))


def allow_entry_problem(entry: str) -> str:
    """What is wrong with an entry of `guard.allow`, in words that follow its name; empty where nothing is."""
    return _entry_problem(entry, "; that turns the guard off")


def deny_entry_problem(entry: str) -> str:
    """The same for an entry of `guard.deny`."""
    return _entry_problem(entry, "")


def _entry_problem(entry: str, consequence: str) -> str:
    if not entry.strip() or not entry.isprintable():
        return "is blank, or holds characters that cannot be printed"
    if entry != entry.strip() or len(entry) > MAX_ENTRY_CHARS:
        return f"has blanks around it, or more than {MAX_ENTRY_CHARS} characters"
    if re.search(OPERATORS, entry):
        return "is more than one command; the guard looks at each command of a line by itself"
    import shlex

    try:
        words = shlex.split(entry)
    except ValueError:
        return "has a quote that is not closed"
    if not words or not words[0].strip("*"):
        return f"would hold for every command{consequence}"
    return _misspelled(entry) if len(words) == 1 else ""


def _misspelled(entry: str) -> str:
    """A word that is nearly a rule's or a category's name was meant to be it."""
    import difflib

    names = {*CATEGORIES, *RULES}
    near = difflib.get_close_matches(entry, names, 1, SIMILARITY) if entry not in names and "-" in entry else []
    return f"is no rule and no category; nearest: {near[0]}" if near else ""
