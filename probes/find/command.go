package find

import (
	"path"
	"slices"
	"strings"
)

// command is what a command line says about a server.
type command struct {
	server string
	// headless says that it starts stages for a server elsewhere.
	headless bool
}

// parseCommand knows the command lines of the servers.
func parseCommand(args []string) (command, bool) {
	program, rest := programOf(args)
	c := command{headless: isHeadless(rest)}
	serves := slices.Contains(rest, "serve")
	switch {
	case program == "vllm-omni" && serves,
		program == "vllm" && serves && slices.Contains(rest, "--omni"),
		isModule(program, "vllm_omni") && (serves || strings.Contains(program, "api_server")):
		c.server = VLLMOmni
	case (program == "sgl-omni" || program == "sglang-omni") && serves,
		isModule(program, "sglang_omni") && (serves || strings.Contains(program, "serve")):
		c.server = SGLangOmni
	}
	return c, c.server != ""
}

func isModule(program, name string) bool {
	return program == name || strings.HasPrefix(program, name+".")
}

// programOf is the name of the program that a command line runs, or the module of
// python -m, and its arguments.
func programOf(args []string) (string, []string) {
	if len(args) == 0 {
		return "", nil
	}
	if !isPythonProgram(args[0]) {
		return path.Base(args[0]), args[1:]
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-m" && i+1 < len(args):
			return args[i+1], args[i+2:]
		case a == "-c":
			return "", nil
		case a == "-W" || a == "-X":
			i++
		case !strings.HasPrefix(a, "-"):
			return path.Base(a), args[i+1:]
		}
	}
	return "", nil
}

// isHeadless knows the mode of one command a stage: those of the later stages serve
// no clients.
func isHeadless(args []string) bool {
	if slices.Contains(args, "--headless") {
		return true
	}
	id := flagValue(args, "stage-id")
	return id != "" && id != "0"
}

// flagValue is the value of a long flag, as --name VALUE or --name=VALUE, with dashes
// or underscores in the name; the last one counts, as argparse has it.
func flagValue(args []string, name string) string {
	value := ""
	for i, a := range args {
		flag, given, hasValue := strings.Cut(a, "=")
		if !strings.HasPrefix(flag, "--") || strings.ReplaceAll(flag[2:], "_", "-") != name {
			continue
		}
		if hasValue {
			value = given
		} else if i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// maxCmdline bounds the command line that is kept.
const maxCmdline = 4096

// printable joins a command line, without the values of arguments that are secret:
// captures are sent to others.
func printable(args []string) string {
	out := make([]string, 0, len(args))
	hide := false
	for _, a := range args {
		flag, _, hasValue := strings.Cut(a, "=")
		secret := isSecret(flag)
		switch {
		case hide:
			a = "…"
		case secret && hasValue:
			a = flag + "=…"
		}
		hide = !hide && secret && !hasValue
		out = append(out, a)
	}
	joined := strings.Join(out, " ")
	if len(joined) > maxCmdline {
		joined = joined[:maxCmdline] + "…"
	}
	return joined
}

func isSecret(flag string) bool {
	if !strings.HasPrefix(flag, "-") {
		return false
	}
	flag = strings.ReplaceAll(strings.ToLower(flag), "_", "-")
	for _, word := range []string{"api-key", "token", "secret", "password"} {
		if strings.HasSuffix(flag, word) {
			return true
		}
	}
	return false
}
