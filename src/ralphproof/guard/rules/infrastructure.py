"""Rules on clouds, clusters and containers."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.place import below, spot
from ralphproof.guard.secret_paths import is_secret
from ralphproof.guard.simple import UNKNOWN, Simple, split
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

DESTROY = Rule(
    "iac-destroy", "infrastructure", "destroys infrastructure that is described in code",
    "show what would happen: `plan`, `preview`",
)  # fmt: skip
APPLY = Rule(
    "iac-apply", "infrastructure", "changes infrastructure without asking",
    "show what would happen: `plan`, `preview`",
)  # fmt: skip
CLUSTER = Rule(
    "cluster-delete", "infrastructure", "deletes or stops what runs in a cluster",
    "look with `kubectl get` or `kubectl diff`",
)  # fmt: skip
CLOUD = Rule("cloud-delete", "infrastructure", "deletes what is in a cloud", "look with the list and describe commands")
VOLUMES = Rule(
    "container-data", "infrastructure", "deletes data or containers that others may use",
    "remove your own containers by name",
)  # fmt: skip
BREAKOUT = Rule(
    "container-breakout", "infrastructure", "gives a container the rights of the machine",
    "mount the project only, without more rights",
)  # fmt: skip
MOUNTS = Rule(
    "container-mount", "infrastructure", "gives a container the machine's files",
    'mount the project only: -v "$PWD:/app"',
)  # fmt: skip
RULES = (DESTROY, APPLY, CLUSTER, CLOUD, VOLUMES, BREAKOUT, MOUNTS)
TERRAFORM = (
    ("destroy", DESTROY), ("apply +-destroy|--destroy", DESTROY), ("apply +-auto-approve|--auto-approve", APPLY),
    ("state rm|push|mv|replace-provider", DESTROY),
    ("workspace delete", DESTROY), ("force-unlock", DESTROY), ("taint", DESTROY),
    ("run-all destroy", DESTROY), ("run-all apply", APPLY),
)  # fmt: skip
ENGINE = (
    ("system|volume|image|container|network|builder prune +-f|--force", VOLUMES), ("system prune", VOLUMES),
    ("volume rm|remove|prune", VOLUMES),
    ("compose down +-v|--volumes", VOLUMES), ("compose rm +-v", VOLUMES),
    ("stack|service|secret|swarm rm|remove|leave", VOLUMES), ("context rm", VOLUMES),
)  # fmt: skip
TABLE: Table = {
    **dict.fromkeys(("terraform", "tofu", "terragrunt"), TERRAFORM),
    **dict.fromkeys(("docker", "podman", "nerdctl"), ENGINE),
    "docker-compose": (("down +-v|--volumes", VOLUMES), ("rm +-v", VOLUMES)),
    "pulumi": (("destroy", DESTROY), ("up +-y|--yes", APPLY), ("stack rm", DESTROY)),
    "cdk": (("destroy", DESTROY), ("deploy +--require-approval", APPLY)), "sam": (("delete", DESTROY),),
    "serverless": (("remove", DESTROY),), "sls": (("remove", DESTROY),),
    "kubectl": (
        ("delete|drain|cordon", CLUSTER), ("scale +--replicas=0", CLUSTER), ("replace +--force", CLUSTER),
        ("rollout undo", CLUSTER), ("taint", CLUSTER),
    ),
    "oc": (("delete", CLUSTER),), "helm": (("uninstall|delete|rollback", CLUSTER),), "eksctl": (("delete", CLUSTER),),
    "k3d": (("cluster delete", CLUSTER),),
    "flux": (("uninstall|delete", CLUSTER),), "argocd": (("app delete", CLUSTER),), "kustomize": (),
    "aws": (
        ("s3 rb", CLOUD), ("s3 rm +--recursive", CLOUD), ("* delete-*|terminate-*|stop-*|deregister-*|purge-*", CLOUD),
        ("* schedule-key-deletion|disable-*|put-bucket-policy", CLOUD), ("iam attach-*|create-access-key|put-*", CLOUD),
    ),
    "gcloud": (("* delete|stop|reset", CLOUD), ("* * delete|stop|reset", CLOUD), ("* * * delete", CLOUD)),
    "gsutil": (("rm|rb", CLOUD),),
    "az": (("* delete|purge|stop|deallocate", CLOUD), ("* * delete|purge", CLOUD), ("* * * delete", CLOUD)),
    "doctl": (("* delete", CLOUD), ("* * delete", CLOUD)),
    "heroku": (("apps:destroy|*:destroy|pg:reset|ps:scale|addons:destroy|*:remove", CLOUD),),
    "fly": (("apps|volumes|machine destroy|delete", CLOUD), ("destroy", CLOUD)),
    "flyctl": (("apps|volumes destroy|delete", CLOUD), ("destroy", CLOUD)),
    "vercel": (("remove|rm", CLOUD), ("* rm|remove", CLOUD)), "netlify": (("sites:delete|*:unset", CLOUD),),
    "wrangler": (("delete", CLOUD), ("* delete", CLOUD)),
    "railway": (("down|delete", CLOUD),), "linode-cli": (("* delete", CLOUD),), "hcloud": (("* delete", CLOUD),),
    "ansible": (), "vagrant": (("destroy", DESTROY),),
    "firebase": (("*:delete|hosting:disable", CLOUD),), "supabase": (("projects delete", CLOUD),),
    "ibmcloud": (("* *-delete", CLOUD),),
}  # fmt: skip
TAKES = {
    "kubectl": "-n --namespace --context -f --filename -o -l --selector --cluster",
    "aws": "--profile --region --output --endpoint-url",
    "helm": "-n --namespace", "docker": "-f --context -H --project-name -p --profile --env-file", "podman": "-f",
    "docker-compose": "-f -p",
    "gcloud": "--project --zone --region", "az": "-g -n --name --resource-group --subscription",
    "terraform": "-chdir", "heroku": "-a --app",
}  # fmt: skip
RUN_TAKES = (
    "-v", "--volume", "--mount", "-e", "--env", "-w", "--workdir", "-p", "--publish", "--name", "-u", "--user",
    "--network", "--net", "--pid", "--ipc", "--cap-add", "--device", "--entrypoint", "--env-file", "--security-opt",
    "--userns", "--uts", "-l", "--label", "-m", "--memory", "--cpus", "--platform", "--add-host", "-h", "--hostname",
)  # fmt: skip
FREE = re.compile(
    r"--privileged(=true)?|--(pid|ipc|uts|userns)=host|--cap-add=(ALL|SYS_\w+|all)|--security-opt=\w+[=:]unconfined"
    r"|--device=/dev/(sd|nvme|mem|kmsg).*"
)
SOCKETS = re.compile(r".*/(docker|podman|containerd|crio)\.sock")


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What a command does to machines elsewhere, and to containers here."""
    yield from told(one, TABLE, TAKES)
    if one.name in ("docker", "podman", "nerdctl"):
        if one.words[1:2] in (("run",), ("create",)) or one.words[1:3] in (("container", "run"), ("compose", "run")):
            yield from _run(one, at)
        elif one.words[1:2] in (("rm",), ("kill",), ("stop",), ("rmi",)) and any(UNKNOWN in word for word in one.words):
            yield VOLUMES.about(shown(one))


def _run(one: Simple, at: Ground) -> Iterator[Objection]:
    options, _ = split(one.words[2:], RUN_TAKES)
    if any(FREE.fullmatch(option) for option in options):
        yield BREAKOUT.about(shown(one))
    for option in options:
        head, _, text = option.partition("=")
        if head in ("-v", "--volume", "--mount"):
            source = _source(text) if head == "--mount" else text.partition(":")[0]
            if SOCKETS.fullmatch(source):
                yield BREAKOUT.about(shown(one))
            elif source.startswith(("/", "~", "..")) and _wide(source, one.cwd, at):
                yield MOUNTS.about(shown(one))


def _source(text: str) -> str:
    return next((part.partition("=")[2] for part in text.split(",") if part.startswith(("source=", "src="))), "")


def _wide(word: str, cwd: str, at: Ground) -> bool:
    """Whether a folder is the machine's own, or holds the user's things."""
    place = spot(word, cwd, at)
    system = any(
        below(place.path, one)
        for one in ("/etc", "/proc", "/sys", "/dev", "/boot", "/root", "/var/lib", "/var/run", "/run", "/usr")
    )
    return (below(at.home, place.path) or system or is_secret(place, word, at)) and not below(place.path, at.root)
