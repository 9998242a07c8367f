package find

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Namer gives the names of a server's stages by their numbers; root is the server's
// own process. It may be nil, and its result too.
type Namer func(root Snapshot) map[int]string

// table is the order of the stages of the models that are known.
var table = []struct {
	model  string
	stages []string
}{
	{"qwen3omni", []string{"thinker", "talker", "code2wav"}},
	{"qwen25omni", []string{"thinker", "talker", "code2wav"}},
	{"qwen3tts", []string{"talker", "code2wav"}},
}

// ModelStages are the stages of a model that is known by its name, its architecture
// or the name of its configuration; nil for any other.
func ModelStages(model string) map[int]string {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, model)
	for _, t := range table {
		if !strings.Contains(plain, t.model) {
			continue
		}
		names := make(map[int]string, len(t.stages))
		for i, name := range t.stages {
			names[i] = name
		}
		return names
	}
	return nil
}

// stageConfig is the part of a deploy or stage configuration that names stages.
type stageConfig struct {
	Stages    []stageEntry `yaml:"stages"`
	StageArgs []stageEntry `yaml:"stage_args"`
}

type stageEntry struct {
	ID         *int   `yaml:"stage_id"`
	ModelStage string `yaml:"model_stage"`
	EngineArgs struct {
		ModelStage string `yaml:"model_stage"`
	} `yaml:"engine_args"`
}

// maxName bounds a stage's name.
const maxName = 64

// StageNames reads the names of stages (model_stage) from a deploy or stage
// configuration. A configuration without any gives an empty map.
func StageNames(b []byte) (map[int]string, error) {
	var c stageConfig
	if err := yaml.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("stage configuration: %w", err)
	}
	names := map[int]string{}
	for i, s := range slices.Concat(c.Stages, c.StageArgs) {
		id, name := i, s.ModelStage
		if s.ID != nil {
			id = *s.ID
		}
		if name == "" {
			name = s.EngineArgs.ModelStage
		}
		if name == "" {
			continue
		}
		if !isName(name) {
			return nil, fmt.Errorf("stage configuration: stage %d has the name %q", id, name)
		}
		names[id] = name
	}
	return names, nil
}

// isName says whether a text can be shown as the name of a stage.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar
	})
}

// modelConfig is the part of a model's config.json that says what it is.
func modelConfig(b []byte) (string, error) {
	var c struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return "", fmt.Errorf("config.json of the model: %w", err)
	}
	if len(c.Architectures) == 0 && c.ModelType == "" {
		return "", errors.New("config.json of the model names no architecture")
	}
	return strings.Join(append(c.Architectures, c.ModelType), " "), nil
}

// modelOf is the model that a command line serves.
func modelOf(args []string) string {
	for _, flag := range []string{"model-path", "model"} {
		if v := flagValue(args, flag); v != "" {
			return v
		}
	}
	if i := slices.Index(args, "serve"); i >= 0 && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
		return args[i+1]
	}
	return ""
}

// configOf is the deploy or stage configuration that a command line names.
func configOf(args []string) string {
	for _, flag := range []string{"deploy-config", "stage-configs-path"} {
		if v := flagValue(args, flag); v != "" {
			return v
		}
	}
	return ""
}
