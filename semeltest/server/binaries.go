package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// programs are the programs of a server, and where to find them.
type programs struct {
	// service names it in SEMEL_NAME_BIN.
	service string
	// names are the programs; all of them have to be in one directory.
	names []string
	// dirs are patterns of the directories where packages put them. Of several versions the newest is taken.
	dirs []string
	// packages are those of Debian and Ubuntu; a name that is only a prefix of the versioned one ends with '*'. None: they are
	// not fetched, because not every release has them.
	packages []string
	// install is the advice of the error.
	install string
}

var (
	postgresPrograms = programs{
		service: "postgres", names: []string{"postgres", "initdb", "psql", "pg_basebackup"}, dirs: postgresDirs,
		packages: postgresPackages, install: "install PostgreSQL 14 or newer",
	}
	psqlProgram = programs{
		service: "postgres", names: []string{"psql"}, dirs: postgresDirs,
		packages: postgresPackages, install: "install psql (a client of PostgreSQL)",
	}
	redisPrograms = programs{
		service: "redis", names: []string{"redis-server"}, dirs: []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"},
		packages: []string{"redis-server", "redis-tools"}, install: "install Redis 6.2 or newer",
	}
	valkeyPrograms = programs{
		service: "valkey", names: []string{"valkey-server"}, dirs: []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"},
		install: "install Valkey 8 or newer (Debian 13, or Debian 12 with backports)",
	}
	postgresPackages = []string{"postgresql-*", "postgresql-client-*"}
	postgresDirs     = []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	}
)

// binaries are programs that were found.
type binaries struct {
	dir string
	// root is the cache they were unpacked into; "" when they are installed.
	root string
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// env is the environment of a server. It must have nothing of the caller's, such as PGHOST.
func (b binaries) env() []string {
	env := []string{"PATH=" + b.dir + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if b.root == "" {
		return env
	}
	var libs []string
	for _, pattern := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib", "lib"} {
		found, _ := filepath.Glob(filepath.Join(b.root, pattern))
		libs = append(libs, found...)
	}
	return append(env, "LD_LIBRARY_PATH="+strings.Join(libs, ":"))
}

// find looks for the programs of a server, and fetches them as a last resort.
func find(ctx context.Context, p programs) (binaries, error) {
	variable := "SEMEL_" + strings.ToUpper(p.service) + "_BIN"
	if dir := os.Getenv(variable); dir != "" {
		if p.in(dir) {
			return binaries{dir: dir}, nil
		}
		return binaries{}, fmt.Errorf("%s is %s, where not all of %s are: name their directory, or unset it",
			variable, dir, strings.Join(p.names, ", "))
	}
	if dir := p.installed(); dir != "" {
		return binaries{dir: dir}, nil
	}
	if len(p.packages) == 0 {
		return binaries{}, fmt.Errorf("%s is not installed: %s, or name its directory in %s", strings.Join(p.names, ", "), p.install, variable)
	}
	b, err := p.fetched(ctx)
	if err != nil {
		return binaries{}, fmt.Errorf("find %s: %w: %s, or name their directory in %s",
			strings.Join(p.names, ", "), err, p.install, variable)
	}
	return b, nil
}

// in reports whether all programs are in a directory.
func (p programs) in(dir string) bool {
	for _, n := range p.names {
		if s, err := os.Stat(filepath.Join(dir, n)); err != nil || s.IsDir() || s.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// installed is the directory of the programs that the system has, or "".
func (p programs) installed() string {
	if first, err := exec.LookPath(p.names[0]); err == nil {
		if dir := filepath.Dir(first); p.in(dir) {
			return dir
		}
		// A link in PATH to one program leads to where the others are.
		if real, err := filepath.EvalSymlinks(first); err == nil && p.in(filepath.Dir(real)) {
			return filepath.Dir(real)
		}
	}
	return p.newest("/")
}

// newest looks below a root for the directory with the highest version in its path.
func (p programs) newest(root string) string {
	var best string
	for _, pattern := range p.dirs {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, dir := range found {
			if p.in(dir) && (best == "" || version(dir) > version(best)) {
				best = dir
			}
		}
	}
	return best
}

// version is the last number of a path, 0 when there is none.
func version(path string) int {
	const digits = "0123456789"
	end := strings.LastIndexAny(path, digits) + 1
	start := len(strings.TrimRight(path[:end], digits))
	n, _ := strconv.Atoi(path[start:end])
	return n
}

// cacheDir is where fetched programs are kept.
func cacheDir() (string, error) {
	if dir := os.Getenv("SEMEL_SERVER_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/semel/servers", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "semel", "servers"), nil
}

// fetched takes the programs from the cache, which is filled first when they are not there.
//
// Several test binaries may do so at once: each unpacks into its own directory, and the first to rename it wins.
func (p programs) fetched(ctx context.Context) (binaries, error) {
	cache, err := cacheDir()
	if err != nil {
		return binaries{}, err
	}
	root := filepath.Join(cache, p.service)
	if dir := p.newest(root); dir != "" {
		return binaries{dir: dir, root: root}, nil
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return binaries{}, errors.New("they are not installed, and cannot be fetched without " + tool)
		}
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	work, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return binaries{}, err
	}
	defer os.RemoveAll(work)
	if err := fetch(ctx, work, p.packages); err != nil {
		return binaries{}, err
	}
	unpacked := filepath.Join(work, "root")
	if p.newest(unpacked) == "" {
		return binaries{}, fmt.Errorf("the packages %s do not have them", strings.Join(p.packages, ", "))
	}
	if err := os.Rename(unpacked, root); err != nil && p.newest(root) == "" {
		return binaries{}, fmt.Errorf("keep the fetched programs: %w", err)
	}
	return binaries{dir: p.newest(root), root: root}, nil
}

// newestName returns the name with the highest version: postgresql-17 of postgresql-15 and postgresql-17.
func newestName(names []string, pattern string) string {
	prefix := strings.TrimSuffix(pattern, "*")
	var best string
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, prefix)
		if !ok || rest == "" || strings.Trim(rest, "0123456789") != "" {
			continue
		}
		if best == "" || version(n) > version(best) {
			best = n
		}
	}
	return best
}

// without removes packages that a server does not need: the compiler for queries, the scripts of the distribution and
// their language, and packages for a running system only.
func without(packages []string) []string {
	return slices.DeleteFunc(packages, func(n string) bool {
		for _, p := range []string{"libllvm", "libz3", "perl", "libperl", "libjson-perl", "postgresql-common",
			"postgresql-client-common", "ssl-cert", "ucf", "adduser", "passwd", "sysstat", "logrotate", "init-system",
			"lsb-base", "sensible-utils", "debconf"} {
			if strings.HasPrefix(n, p) {
				return true
			}
		}
		return false
	})
}
