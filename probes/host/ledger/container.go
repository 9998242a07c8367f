package ledger

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// absent is nil where a file is only not there: the group has no such bound.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

var (
	containerID = regexp.MustCompile(`(?:^|[^0-9a-f])([0-9a-f]{64})(?:[^0-9a-f]|$)`)
	imageDigest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
)

// container looks for the engine's id of the container that a process is in: in the
// names of its control groups, or among its mounts (/var/lib/docker/containers/ID/hosts).
func (r *reader) container(pid int, env map[string]string, n null.Reasons) *Container {
	c := Container{}
	groups, err := r.Root.Read(proc(pid, "cgroup"), maxCgroup)
	if m := containerID.FindSubmatch(groups); m != nil {
		c.ID = string(m[1])
	} else if mounts, mountErr := r.Root.Read(proc(pid, "mountinfo"), 8*maxCgroup); mountErr == nil {
		c.ID = mountedID(mounts)
	}
	if c.ID == "" {
		if err == nil {
			err = errors.New("neither its control groups nor its mounts name a container")
		}
		return null.Value(n, "container", c, err)
	}
	digest, err := imageOf(env)
	c.ImageDigest = null.Value(n, "container.image_digest", digest, err)
	return &c
}

// mountedID finds the folder that an engine mounts /etc/hosts and its like from.
func mountedID(mountinfo []byte) string {
	for line := range strings.Lines(string(mountinfo)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[4], "/etc/") || !strings.Contains(f[3], "containers/") {
			continue
		}
		if m := containerID.FindStringSubmatch(f[3]); m != nil {
			return m[1]
		}
	}
	return ""
}

// imageOf finds the digest of an image where whoever started the container put it into
// the environment.
func imageOf(env map[string]string) (string, error) {
	found := ""
	for name, value := range env {
		if d := imageDigest.FindString(value); d != "" && strings.Contains(strings.ToUpper(name), "IMAGE") {
			if found != "" && found != d {
				return "", errors.New("the environment names more than one image")
			}
			found = d
		}
	}
	if found == "" {
		return "", errors.New("neither the control group nor the environment tells the image of a container")
	}
	return found, nil
}
