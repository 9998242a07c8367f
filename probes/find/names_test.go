package find

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModelStages(t *testing.T) {
	omni := map[int]string{0: "thinker", 1: "talker", 2: "code2wav"}
	for model, want := range map[string]map[int]string{
		"Qwen/Qwen3-Omni-30B-A3B-Instruct":       omni,
		"Qwen3OmniMoeForConditionalGeneration x": omni,
		"/cache/models--Qwen--Qwen2.5-Omni-7B":   omni,
		"qwen2_5_omni.yaml":                      omni,
		"Qwen3-TTS-12Hz-1.7B":                    {0: "talker", 1: "code2wav"},
		"Qwen3-32B":                              nil,
		"":                                       nil,
	} {
		if diff := cmp.Diff(want, ModelStages(model)); diff != "" {
			t.Errorf("%s: %s", model, diff)
		}
	}
}

func TestStageNames(t *testing.T) {
	for _, test := range []struct {
		in   string
		want map[int]string
	}{
		{"stage_args:\n - stage_id: 0\n   engine_args: {model_stage: thinker}\n - stage_id: 2\n   engine_args: {model_stage: code2wav}\n", map[int]string{0: "thinker", 2: "code2wav"}},
		{"stages:\n - model_stage: a\n - {stage_id: 1, devices: '0'}\n - model_stage: c\n", map[int]string{0: "a", 2: "c"}},
		{"other: 1\n", map[int]string{}},
		{"", map[int]string{}},
	} {
		got, err := StageNames([]byte(test.in))
		if err != nil {
			t.Errorf("StageNames(%q): %v", test.in, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("StageNames(%q): %s", test.in, diff)
		}
	}
	for _, in := range []string{"stages: 7", "{", "stages:\n - model_stage: \"a\\nb\"\n", "stages:\n - model_stage: " + strings.Repeat("x", 65)} {
		if got, err := StageNames([]byte(in)); err == nil {
			t.Errorf("StageNames(%q) = %v", in, got)
		}
	}
}

// The server's own deploy files name no stages: the model's table does.
func TestDeployFiles(t *testing.T) {
	for _, file := range []string{"testdata/deploy-omni.yaml", "testdata/deploy-tts.yaml"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if names, err := StageNames(b); err != nil || len(names) != 0 {
			t.Errorf("%s: %v, %v", file, names, err)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, test := range []struct {
		args, server  string
		headless      bool
		model, config string
	}{
		{serve, VLLMOmni, false, "MODEL", "deploy.yaml"},
		{"vllm|serve|--omni|--model=m|--stage_configs_path=/a b.yaml", VLLMOmni, false, "m", "/a b.yaml"},
		{"/usr/bin/python3.12|-X|dev|-u|-m|vllm_omni.entrypoints.cli.main|serve|m", VLLMOmni, false, "m", ""},
		{"python|-m|vllm_omni.entrypoints.openai.api_server|--model|m", VLLMOmni, false, "m", ""},
		{"vllm-omni|serve|m|--stage-id|2", VLLMOmni, true, "m", ""},
		{"vllm-omni|serve|m|--stage-id=0", VLLMOmni, false, "m", ""},
		{"sgl-omni|serve|--model-path|q", SGLangOmni, false, "q", ""},
		{"python|-m|sglang_omni.cli|serve|--model-path|q", SGLangOmni, false, "q", ""},
		{"vllm|serve|m", "", false, "m", ""},
		{"python|-c|vllm-omni|serve", "", false, "", ""},
		{"timeout|9|vllm-omni|serve|m", "", false, "m", ""},
		{"python|-m", "", false, "", ""},
	} {
		args := strings.Split(test.args, "|")
		c, ok := parseCommand(args)
		if c.server != test.server || ok != (test.server != "") || ok && c.headless != test.headless {
			t.Errorf("parseCommand(%s) = %+v", test.args, c)
		}
		if got := modelOf(args); ok && got != test.model {
			t.Errorf("modelOf(%s) = %q, want %q", test.args, got, test.model)
		}
		if got := configOf(args); got != test.config {
			t.Errorf("configOf(%s) = %q, want %q", test.args, got, test.config)
		}
	}
	if _, ok := parseCommand(nil); ok {
		t.Error("a kernel thread is a server")
	}
}

func TestPrintableHidesSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"a|--api-key|k1|--port|1":        "a --api-key … --port 1",
		"a|--api_key=k1|--hf-token=x|-v": "a --api_key=… --hf-token=… -v",
		"a|--max-tokens|5":               "a --max-tokens 5",
		"api-key|x":                      "api-key x",
	} {
		if got := printable(strings.Split(in, "|")); got != want {
			t.Errorf("printable(%s) = %q, want %q", in, got, want)
		}
	}
	if got := printable([]string{strings.Repeat("x", 9999)}); len(got) != maxCmdline+len("…") {
		t.Errorf("%d bytes are kept", len(got))
	}
}

func FuzzStageNames(f *testing.F) {
	f.Add([]byte("stage_args:\n - stage_id: 0\n   engine_args: {model_stage: thinker}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := StageNames(b)
		for _, name := range names {
			if err != nil || !isName(name) {
				t.Errorf("%q, %v", name, err)
			}
		}
	})
}
