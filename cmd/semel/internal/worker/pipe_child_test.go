package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// script is the body of a message for pipeChild: what the child does about it.
type script struct {
	Write string `json:"write"` // this line, with the message's id in place of $ID; default: done
	Exit  int    `json:"exit"`  // end after that
	Once  bool   `json:"once"`  // only in the first attempt
	Hang  bool   `json:"hang"`  // write nothing, whatever comes
	// Wait is a control line that is waited for: cancel or extend.
	Wait string `json:"wait"`
	// Together is how many messages without a result are waited for; there must never be more.
	Together int `json:"together"`
}

type childMessage struct {
	messageLine
	Cancel uint64 `json:"cancel"`
	Extend uint64 `json:"extend"`
}

// pipeChild is a handler process that does what messages tell it. Arguments: exit=N ends it at once with that status,
// rubbish makes its first line no ready line, fails=FILE makes it end at its start until the file has three lines.
func pipeChild(args []string) {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "exit":
			n, _ := strconv.Atoi(value)
			os.Exit(n)
		case "rubbish":
			fmt.Println("Hello, I am a handler")
		case "fails":
			endUntilThree(value)
		}
	}
	fmt.Println(`{"ready": 1}`)
	waiting, together := map[uint64]script{}, []uint64{}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			fmt.Fprintln(os.Stderr, "end of input")
			os.Exit(0)
		}
		var batch []childMessage
		if line[0] != '[' {
			line = append(append([]byte{'['}, line...), ']')
		}
		if err := json.Unmarshal(line, &batch); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		for _, m := range batch {
			if id := max(m.Cancel, m.Extend); id > 0 {
				if s, ok := waiting[id]; ok && s.Wait == "cancel" == (m.Cancel > 0) {
					delete(waiting, id)
					s.do(id)
				}
				continue
			}
			var s script
			_ = json.Unmarshal(m.Body, &s) // other bodies are done
			if s.Once && m.Attempt > 1 {
				s = script{}
			}
			switch {
			case s.Hang:
			case s.Wait != "":
				waiting[m.ID] = s
			case s.Together > 0:
				if together = append(together, m.ID); len(together) == s.Together {
					for _, id := range together {
						s.do(id)
					}
					together = nil
				} else if len(together) > s.Together {
					os.Exit(4)
				}
			default:
				s.do(m.ID)
			}
		}
	}
}

func (s script) do(id uint64) {
	line := s.Write
	if line == "" {
		line = `{"id":$ID,"outcome":"done","result":{"pid":` + strconv.Itoa(os.Getpid()) + `}}`
	}
	fmt.Println(strings.ReplaceAll(line, "$ID", strconv.FormatUint(id, 10)))
	if s.Exit > 0 {
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(s.Exit)
	}
}

// endUntilThree adds a line to a file and ends, until it has three.
func endUntilThree(file string) {
	b, _ := os.ReadFile(file)
	if len(b) == 3 {
		return
	}
	if os.WriteFile(file, append(b, 'x'), 0o600) != nil {
		os.Exit(5)
	}
	fmt.Fprintln(os.Stderr, "no module of that name")
	os.Exit(1)
}
