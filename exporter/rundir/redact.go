package rundir

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Redacted stands where a secret stood.
const Redacted = "REDACTED"

// secretWords are the words that make the name of a flag, header, key or
// variable a secret's. A name is compared word by word, so that --max-tokens and
// --tokenizer are none. `key` alone is none either: --tls-key names a file.
var secretWords = []string{
	"auth", "authkey", "authorization", "apikey", "bearer", "cookie", "credential", "credentials", "passphrase",
	"passwd", "password", "secret", "secrets", "signature", "token", "userinfo",
}

// keyWords make a secret of the word `key` behind them.
var keyWords = []string{"access", "account", "api", "auth", "secret", "signing"}

var (
	wordBreak  = regexp.MustCompile(`[^A-Za-z0-9]+|([a-z0-9])([A-Z])`)
	header     = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)("?\s*[:=]\s*["']?)[^"'\r\n]+`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer)\s+[^\s"',;]+`)
	userinfo   = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s@]*(?:@[^/?#\s@]*)*@`)
	knownToken = regexp.MustCompile(`\b(?:sk-|hf_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}`)
	assignment = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_.-]*)("?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'&,;{}\[\]]+)`)
)

// secretName says whether a flag, header, key or variable of that name holds a secret.
func secretName(name string) bool {
	words := strings.Fields(strings.ToLower(wordBreak.ReplaceAllString(name, "$1 $2")))
	for i, w := range words {
		if slices.Contains(secretWords, w) {
			return true
		}
		if (w == "key" || w == "keys") && i > 0 && slices.Contains(keyWords, words[i-1]) {
			return true
		}
	}
	return false
}

// RedactArgs returns a command line with the secrets replaced: values of flags,
// headers and variables whose name says secret, bearer tokens, tokens of known
// form, and the credentials of URLs. It cannot know a secret that nothing marks.
func RedactArgs(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if i > 0 && !strings.HasPrefix(arg, "--") && takesSecret(args[i-1], arg) {
			out[i] = Redacted
			continue
		}
		out[i] = redactArg(arg)
	}
	return out
}

// takesSecret says whether flag, an argument of its own, makes value a secret.
func takesSecret(flag, value string) bool {
	switch {
	case !strings.HasPrefix(flag, "-") || strings.Contains(flag, "="):
		return false
	case flag == "-u" || flag == "--user" || flag == "--proxy-user": // curl's NAME:PASSWORD
		return strings.Contains(value, ":")
	default:
		return secretName(flag)
	}
}

func redactArg(arg string) string {
	if rest, ok := strings.CutPrefix(arg, "-H"); ok { // curl's -HName: value
		return "-H" + redactText(rest)
	}
	flag, value, ok := strings.Cut(arg, "=")
	if !ok || !strings.HasPrefix(flag, "-") {
		return redactText(arg)
	}
	if takesSecret(flag, value) {
		return flag + "=" + Redacted
	}
	return flag + "=" + redactText(value)
}

// RedactURL returns a URL without its credentials and without the values of
// query parameters whose name says secret.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return redactText(raw)
	}
	u.User = nil
	return redactText(u.String())
}

func redactText(s string) string {
	// A header or a variable that is the whole text goes whole: its value may
	// hold spaces, commas and semicolons.
	if i := strings.IndexAny(s, ":="); i > 0 && secretName(s[:i]) && !strings.ContainsAny(s[:i], " /?&{\"'") {
		return s[:i+1] + Redacted
	}
	s = userinfo.ReplaceAllString(s, "$1")
	s = header.ReplaceAllString(s, "${1}${2}"+Redacted)
	s = bearer.ReplaceAllString(s, "$1 "+Redacted)
	s = knownToken.ReplaceAllString(s, Redacted)
	return redactAssignments(s)
}

// redactAssignments replaces the values of `name=value` and `"name": "value"`
// wherever they stand, also as the value of another one.
func redactAssignments(s string) string {
	var out strings.Builder
	for at := 0; ; {
		m := assignment.FindStringSubmatchIndex(s[at:])
		if m == nil {
			out.WriteString(s[at:])
			return out.String()
		}
		name, value, end := at+m[2], at+m[6], at+m[7]
		out.WriteString(s[at:value])
		at = value
		if host := strings.HasSuffix(s[:name], "//"); host || !secretName(s[name:at]) {
			continue // a host's name before its port is no secret
		}
		quote := ""
		if c := s[value]; c == '"' || c == '\'' {
			quote = string(c)
		}
		out.WriteString(quote + Redacted + quote)
		at = end
	}
}

// redactConfig encodes a configuration without its secrets.
func redactConfig(config any) (json.RawMessage, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(redactTree(tree, false))
}

// redactTree walks decoded JSON; secret says that a key above was a secret's.
func redactTree(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = redactTree(value, secret || secretName(key))
		}
	case []any:
		for i := range v {
			v[i] = redactTree(v[i], secret)
		}
	case string:
		if secret && v != "" {
			return Redacted
		}
		return redactText(v)
	}
	return v
}
