// Package version says which build runs.
package version

import (
	"runtime"
	"runtime/debug"
)

// version is set by the linker, which can only set package variables: -X …/services/internal/version.version=v1.2.3.
var version string

// Info describes a build; it is what `hermes version -o json` prints.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Get returns the build's version: the linker's, else that of the module, else "dev".
func Get() Info {
	info := Info{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			info.Commit = s.Value
		}
	}
	if info.Version == "" {
		info.Version = build.Main.Version
	}
	if info.Version == "" || info.Version == "(devel)" {
		info.Version = "dev"
	}
	return info
}
