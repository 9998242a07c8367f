package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy"
)

// finding is one line of the preflight.
type finding struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`
	Found    string `json:"found"`
	Needed   string `json:"needed,omitempty"`
}

func checkCmd(a *app) *cobra.Command {
	upstream, config, asJSON := "", "", false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "preflight: what works here, and what would fix what does not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := []finding{checkStamps(cmd.Context()), checkFiles(), checkDisk()}
			if upstream != "" {
				f = append(f, checkUpstream(cmd.Context(), upstream)...)
			}
			f = append(f, finding{Name: "ALPN", OK: true, Found: "http/1.1 alone is offered and asked for: WebSocket upgrades need it"})
			c, err := loadConfig(config)
			if err == nil {
				err = c.Stages.Validate()
			}
			if err != nil {
				return exitWith(exitUsage, err)
			}
			f = append(f, checkStages(cmd.Context(), c.Stages, upstream)...)
			return a.printCheck(f, asJSON)
		},
	}
	cmd.Flags().StringVar(&upstream, "upstream", "", "server to look at: http://HOST:PORT")
	cmd.Flags().StringVar(&config, "config", "", "YAML configuration as for serve (its stages section is used)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) printCheck(list []finding, asJSON bool) error {
	bad := 0
	for _, f := range list {
		if f.Required && !f.OK {
			bad++
		}
	}
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(list); err != nil {
			return exitWith(exitEnvironment, err)
		}
	} else {
		for _, f := range list {
			mark := "✓"
			if !f.OK {
				mark = map[bool]string{true: "✗", false: "–"}[f.Required]
			}
			_, _ = fmt.Fprintf(a.out, "%s %-16s %s", mark, f.Name, f.Found)
			if !f.OK && f.Needed != "" {
				_, _ = fmt.Fprintf(a.out, "  (needed: %s)", f.Needed)
			}
			_, _ = fmt.Fprintln(a.out)
		}
	}
	if bad > 0 {
		return exitWith(exitUnusable, fmt.Errorf("%d required checks failed", bad))
	}
	return nil
}

// checkStamps tries a connection on loopback for receive stamps.
func checkStamps(ctx context.Context) finding {
	f := finding{Name: "receive stamps", Needed: "a kernel with SO_TIMESTAMPING on TCP (Linux 4.13)"}
	err := proxy.TryStamps(ctx)
	f.OK = err == nil
	f.Found = "from the kernel"
	if err != nil {
		f.Found = "read returns are the stamps: " + err.Error()
	}
	return f
}

func checkFiles() finding {
	f := finding{Name: "open files", Required: true, Needed: "1024: two descriptors a connection"}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		f.Found = err.Error()
		return f
	}
	f.OK, f.Found = l.Cur >= 1024, fmt.Sprintf("limit %d", l.Cur)
	return f
}

func checkDisk() finding {
	f := finding{Name: "disk", Needed: "1 GiB in the temporary folder"}
	var s unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &s); err != nil {
		f.Found = err.Error()
		return f
	}
	free := s.Bavail * uint64(s.Bsize)
	f.OK, f.Found = free >= 1<<30, fmt.Sprintf("%.1f GiB free in the temporary folder", float64(free)/(1<<30))
	return f
}

// answer is what a server said to one question.
type answer struct {
	code                 int
	status, server, body string
}

// checkUpstream asks the server what it is.
func checkUpstream(ctx context.Context, base string) []finding {
	reach := finding{Name: "upstream", Required: true, Needed: "an HTTP server that answers GET /v1/models"}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		reach.Found = "not a URL"
		return []finding{reach}
	}
	client := &http.Client{Timeout: 10 * time.Second}
	get := func(path string) (answer, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path, nil)
		if err != nil {
			return answer{}, fmt.Errorf("making a request: %w", err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return answer{}, fmt.Errorf("asking: %w", err)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return answer{resp.StatusCode, resp.Status, resp.Header.Get("Server"), string(b)}, errors.Join(err, resp.Body.Close())
	}
	models, err := get("/v1/models")
	if err != nil {
		reach.Found = err.Error()
		return []finding{reach}
	}
	reach.OK, reach.Found = true, fmt.Sprintf("answers %s, server %q", models.status, models.server)
	out := []finding{reach, guess(models.body, get)}
	if h, err := get("/health"); err == nil {
		out = append(out, finding{Name: "health", OK: h.code < 300, Found: h.status + " (no proof of life)"})
	}
	return out
}

// guess names the server by what it says of itself.
func guess(models string, get func(string) (answer, error)) finding {
	f := finding{Name: "server kind", Found: "unknown", Needed: "vLLM-Omni or SGLang-Omni for stage probes; any OpenAI-like server is measured"}
	switch {
	case strings.Contains(models, `"owned_by":"sglang-omni"`), strings.Contains(models, `"owned_by": "sglang-omni"`):
		f.OK, f.Found = true, "SGLang-Omni"
	case strings.Contains(models, `"owned_by":"vllm`), strings.Contains(models, `"owned_by": "vllm`):
		f.OK, f.Found = true, "vLLM or vLLM-Omni"
		if m, err := get("/metrics"); err == nil && m.code == http.StatusOK && strings.Contains(m.body, "vllm_omni:") {
			f.Found = "vLLM-Omni"
		}
	}
	return f
}
