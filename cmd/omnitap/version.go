package main

import (
	"runtime/debug"
	"strings"
)

// version is what the build recorded: the module's version and the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var v strings.Builder
	v.WriteString(info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.WriteString(" " + s.Value)
		}
	}
	return v.String()
}
