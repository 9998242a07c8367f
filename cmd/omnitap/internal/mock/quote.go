package mock

import (
	"encoding/base64"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
)

// quote writes a JSON string as pydantic and orjson do, quoteASCII as
// Python's json.dumps does.
func quote(s string) string      { return ordered.Quote(s) }
func quoteASCII(s string) string { return ordered.QuoteASCII(s) }

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
