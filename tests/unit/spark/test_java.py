"""Finding a Java runtime: real processes, played by small shell scripts that answer as a JVM does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headrace.core.errors import Misconfigured
from headrace.spark import java


def make_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A runtime that says its version and modules, and echoes whatever else it is given."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").write_text("modules")
    (home / "bin" / "keytool").write_text("keytool")
    modules = "java.base jdk.incubator.vector" if vector else "java.base"
    script = f"""#!/bin/sh
case "$1" in
-XshowSettings:properties)
  echo "    java.home = {home}" >&2
  echo "    java.specification.version = {version}" >&2 ;;
--list-modules) echo "{modules}" ;;
*) printf '%s\\n' "$@" ;;
esac
"""
    binary = home / "bin" / "java"
    binary.write_text(script)
    binary.chmod(0o755)
    return home


@pytest.fixture
def no_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    first = make_java(tmp_path / "first", "17")
    second = make_java(tmp_path / "second", "21")
    environ = {"JAVA_HOME": str(first), "PATH": f"{second}/bin:{os.environ['PATH']}"}
    assert java.find_java(environ) == first


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_too_old_a_java_home_is_passed_over_for_path(tmp_path: Path, version: str) -> None:
    old = make_java(tmp_path / "old", version)
    new = make_java(tmp_path / "new", "17")
    environ = {"JAVA_HOME": str(old), "PATH": f"{new}/bin:{os.environ['PATH']}"}
    assert java.find_java(environ) == new


def test_a_link_in_path_leads_to_the_home_that_java_itself_tells(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": f"{links}:{os.environ['PATH']}"}) == home


@pytest.mark.usefixtures("no_bundled")
def test_no_java_is_misconfigured_and_says_what_was_seen(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11")
    with pytest.raises(Misconfigured) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": f"{old}/bin"})
    assert caught.value.code == "SPARK_JAVA_MISSING"
    assert caught.value.detail == "JAVA_HOME: does not run; PATH: is Java 11"


def test_the_bundled_runtime_is_found_when_the_machine_has_none(tmp_path: Path) -> None:
    home = java.find_java({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    said = subprocess.run(
        [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        check=True,
    )
    assert b'version "' in said.stderr


def test_the_java_that_is_chosen_is_taken_and_no_other(tmp_path: Path) -> None:
    machine = make_java(tmp_path / "machine", "17")
    chosen = make_java(tmp_path / "chosen", "21")
    others = {"JAVA_HOME": str(machine), "PATH": f"{machine}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    assert java.find_java({**others, "HEADRACE_JAVA": str(chosen)}) == chosen
    packaged = java.find_java({**others, "HEADRACE_JAVA": "packaged"})
    assert packaged not in (machine, chosen)
    with pytest.raises(Misconfigured) as caught:
        java.find_java({**others, "HEADRACE_JAVA": str(tmp_path / "nowhere")})
    assert (caught.value.code, caught.value.detail) == ("SPARK_JAVA_MISSING", "HEADRACE_JAVA: does not run")


def test_the_wrapper_drops_one_argument_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    home = make_java(tmp_path / "it's here", "17", vector=False)
    wrapped = java.find_java({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    said = subprocess.run(
        [str(wrapped / "bin" / "java"), "-a b", "--add-modules=jdk.incubator.vector", "", "$x*"],
        capture_output=True,
        check=True,
    )
    assert said.stdout.decode() == "-a b\n\n$x*\n"


def test_the_wrapper_is_a_whole_java_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17", vector=False)
    wrapped = java.find_java({"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert wrapped.is_relative_to(tmp_path / "cache")
    assert (wrapped / "lib" / "modules").read_text() == "modules"
    assert (wrapped / "bin" / "keytool").read_text() == "keytool"


def test_the_wrapper_is_made_once(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17", vector=False)
    environ = {"JAVA_HOME": str(home), "HOME": str(tmp_path)}
    first = java.find_java(environ)
    made = (first / "bin" / "java").stat().st_ino
    assert java.find_java(environ) == first
    assert (first / "bin" / "java").stat().st_ino == made


def test_a_broken_wrapper_is_made_anew(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17", vector=False)
    environ = {"JAVA_HOME": str(home), "HOME": str(tmp_path)}
    first = java.find_java(environ)
    (first / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    again = java.find_java(environ)
    assert java.examine(again / "bin" / "java") is not None
    assert [entry.name for entry in again.parent.iterdir()] == [again.name]


@pytest.mark.parametrize("home", ["", "relative", "/proc/no/such"])
def test_a_home_that_cannot_be_written_leaves_a_temporary_wrapper(tmp_path: Path, home: str) -> None:
    runtime = make_java(tmp_path / "jvm", "17", vector=False)
    wrapped = java.find_java({"JAVA_HOME": str(runtime), "HOME": home})
    assert (wrapped / "bin" / "java").is_file()
    assert wrapped.name.startswith("headrace-java-")
