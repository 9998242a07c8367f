package rundir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every case holds `s3cr3t` where a secret is, and nothing of it may stay.
func TestRedactArgs(t *testing.T) {
	cases := []struct {
		name       string
		args, want []string
	}{
		{"flag", []string{"--api-key", "s3cr3t", "--listen", ":1"}, []string{"--api-key", "REDACTED", "--listen", ":1"}},
		{"flag with equals", []string{"--hf-token=s3cr3t=="}, []string{"--hf-token=REDACTED"}},
		{"value that looks like a flag", []string{"--password", "-s3cr3t"}, []string{"--password", "REDACTED"}},
		{"two flags", []string{"--auth", "--verbose", "x"}, []string{"--auth", "--verbose", "x"}},
		{"camel case", []string{"-apiKey=s3cr3t"}, []string{"-apiKey=REDACTED"}},
		{"no secrets", []string{"--max-tokens", "5", "--tls-key", "key.pem", "--tokenizer=x"}, []string{"--max-tokens", "5", "--tls-key", "key.pem", "--tokenizer=x"}},
		{"header", []string{"-H", "Authorization: Bearer s3cr3t, s3cr3t"}, []string{"-H", "Authorization:REDACTED"}},
		{"header flag", []string{"--header=X-Api-Key: s3cr3t"}, []string{"--header=X-Api-Key:REDACTED"}},
		{"header glued", []string{"-HCookie: a=s3cr3t; b=s3cr3t"}, []string{"-HCookie:REDACTED"}},
		{"curl user", []string{"-u", "me:s3cr3t"}, []string{"-u", "REDACTED"}},
		{"python script", []string{"python", "-u", "run.py"}, []string{"python", "-u", "run.py"}},
		{"variable", []string{"HF_TOKEN=s3cr3t s3cr3t", "cmd"}, []string{"HF_TOKEN=REDACTED", "cmd"}},
		{"url", []string{"--upstream=https://me:s3cr3t@host:1/p?token=s3cr3t&a=b"}, []string{"--upstream=https://host:1/p?token=REDACTED&a=b"}},
		{"url with at in password", []string{"ws://me:s3@cr3t@s3cr3t@host/"}, []string{"ws://host/"}},
		{"host named like a secret", []string{"http://auth:8080/x"}, []string{"http://auth:8080/x"}},
		{"json", []string{`{"api_key": "s3cr3t s3cr3t", "n": 1}`}, []string{`{"api_key": "REDACTED", "n": 1}`}},
		{"shell", []string{"-c", `curl -H 'Authorization: Basic s3cr3t' http://h:1/`}, []string{"-c", `curl -H 'Authorization: REDACTED' http://h:1/`}},
		{"shell variable", []string{"-c", `A=1 OPENAI_API_KEY='s3cr3t s3cr3t' run`}, []string{"-c", `A=1 OPENAI_API_KEY='REDACTED' run`}},
		{"bearer alone", []string{"bearer s3cr3t"}, []string{"bearer REDACTED"}},
		{"known form", []string{"sk-s3cr3t0000", "hf_s3cr3t0000"}, []string{"REDACTED", "REDACTED"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			given := strings.Join(c.args, "\x00")
			got := RedactArgs(c.args)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("RedactArgs(%q) (-want +got):\n%s", c.args, diff)
			}
			if strings.Join(c.args, "\x00") != given {
				t.Error("RedactArgs changed its argument")
			}
		})
	}
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://host:8091":                    "http://host:8091",
		"http://me@host/":                     "http://host/",
		"https://me:pass@host/v1?signature=x": "https://host/v1?signature=REDACTED",
		"http://me:pa ss@host/%zz":            "http://me:pa ss@host/%zz",
		"":                                    "",
	} {
		if got := RedactURL(raw); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestRedactConfig(t *testing.T) {
	got, err := redactConfig(map[string]any{
		"api_keys": []string{"a", "b"}, "tls": map[string]any{"key": "key.pem"}, "empty_token": "", "first_token": 3,
		"upstream": "http://me:pass@host/", "big": int64(1) << 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"api_keys":["REDACTED","REDACTED"],"big":1152921504606846976,"empty_token":"","first_token":3,` +
		`"tls":{"key":"key.pem"},"upstream":"http://host/"}`
	if string(got) != want {
		t.Errorf("redactConfig = %s, want %s", got, want)
	}
}
