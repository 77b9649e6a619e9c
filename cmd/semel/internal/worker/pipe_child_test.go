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
	// Together is how many messages without a result are waited for.
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
	c := childState{waiting: map[uint64]script{}}
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
			c.take(&m)
		}
	}
}

// childState is what a handler process keeps between lines.
type childState struct {
	waiting  map[uint64]script // for a control line
	together []uint64          // messages without a result
}

func (c *childState) take(m *childMessage) {
	if id := max(m.Cancel, m.Extend); id > 0 {
		if s, ok := c.waiting[id]; ok && s.Wait == "cancel" == (m.Cancel > 0) {
			delete(c.waiting, id)
			s.do(id)
		}
		return
	}
	var s script
	_ = json.Unmarshal(m.Body, &s) // other bodies are done
	if s.Once && m.Attempt > 1 {
		s = script{}
	}
	switch {
	case s.Hang:
	case s.Wait != "":
		c.waiting[m.ID] = s
	case s.Together > 0:
		if c.together = append(c.together, m.ID); len(c.together) == s.Together {
			for _, id := range c.together {
				s.do(id)
			}
			c.together = nil
		}
	default:
		s.do(m.ID)
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
