package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// apt runs apt programs without root: with its own lists and cache when own is set, otherwise with the system's lists.
type apt struct {
	dir string
	own bool
}

func (a apt) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	// The sandbox user of apt may not write into our directory; there is nothing to protect when we are not root.
	options := []string{"-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1", "-o", "Dir::Cache=" + a.dir + "/cache"}
	if a.own {
		options = append(options, "-o", "Dir::State::Lists="+a.dir+"/lists")
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Dir, cmd.Env = a.dir, append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

// fetch downloads packages and their missing dependencies, and unpacks them to work/root. It runs none of their scripts. If
// the package lists are empty, as in most container images, it fetches these first.
func fetch(ctx context.Context, work string, patterns []string) error {
	for _, dir := range []string{"cache/archives/partial", "lists/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	a := apt{dir: work}
	names, err := a.resolve(ctx, patterns)
	if err == nil {
		err = a.download(ctx, names)
	}
	if err != nil { // no lists, or old ones that name what is no longer there
		a.own = true
		if _, again := output(a.command(ctx, "apt-get", "-qq", "update")); again != nil {
			return errors.Join(err, again)
		}
		if names, err = a.resolve(ctx, patterns); err != nil {
			return err
		}
		if err := a.download(ctx, names); err != nil {
			return err
		}
	}
	return unpack(ctx, work)
}

// resolve turns patterns into the names of the packages and of those they need besides.
func (a apt) resolve(ctx context.Context, patterns []string) ([]string, error) {
	var wanted []string
	for _, p := range patterns {
		if !strings.HasSuffix(p, "*") {
			wanted = append(wanted, p)
			continue
		}
		out, err := output(a.command(ctx, "apt-cache", "pkgnames", strings.TrimSuffix(p, "*")))
		if err != nil {
			return nil, err
		}
		name := newestName(strings.Fields(out), p)
		if name == "" {
			return nil, fmt.Errorf("no package is named %s", p)
		}
		wanted = append(wanted, name)
	}
	out, err := output(a.command(ctx, "apt-get", append([]string{"-qq", "--simulate", "--no-install-recommends", "install"},
		wanted...)...))
	if err != nil {
		return nil, err
	}
	names := wanted
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Inst" && !slices.Contains(names, f[1]) {
			names = append(names, f[1])
		}
	}
	return without(names), nil
}

func (a apt) download(ctx context.Context, names []string) error {
	_, err := output(a.command(ctx, "apt-get", append([]string{"-qq", "download"}, names...)...))
	return err
}

// unpack unpacks all packages of a directory into its folder root.
func unpack(ctx context.Context, work string) error {
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	for _, p := range packages {
		if _, err := output(exec.CommandContext(ctx, "dpkg", "--extract", p, root)); err != nil {
			return err
		}
	}
	// The compiler for queries is loaded if its library exists, and then fails without the packages that were left out.
	jit, _ := filepath.Glob(filepath.Join(root, "usr/lib/postgresql/*/lib/llvmjit.so"))
	for _, path := range jit {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	// The user that the server runs as needs access.
	return os.Chmod(root, 0o755)
}
