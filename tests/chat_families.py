"""Chat templates in the manner of twelve published families. Each was written for the tests; none is copied."""

from __future__ import annotations

LLAMA = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}{%- set date_string = "01 Jan 2025" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set about = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set about = "" %}{%- endif %}
{{- "<|head|>system<|tail|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Knowledge ends: December 2023\\nToday: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "These functions can be called as {\\"name\\": ..., \\"parameters\\": ...}.\\n\\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- about + "<|turn|>" }}
{%- if tools_in_user_message and tools is not none %}
    {%- if messages | length == 0 %}{{- raise_exception("Tools need a first user message") }}{%- endif %}
    {%- set first = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
    {{- '<|head|>user<|tail|>\\n\\nAnswer with a call of one of these functions where it helps.\\n\\n' }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {{- first + "<|turn|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role in ('ipython', 'tool') or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|tail|>\\n\\n' + message['content'] | trim + '<|turn|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("This model makes one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|tail|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- "}<|turn|>" }}
    {%- else %}
        {{- "<|head|>ipython<|tail|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|turn|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|tail|>\\n\\n' }}{%- endif %}
"""

QWEN2 = """{%- if tools %}
    {{- '<|start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}
    {%- else %}{{- 'You are a helper.' }}{%- endif %}
    {{- "\\n\\n# Tools\\n\\nSignatures stand within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools>\\n\\nCall as <tool_call>{\\"name\\": ..., \\"arguments\\": ...}</tool_call><|end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}{{- '<|start|>system\\n' + messages[0]['content'] + '<|end|>\\n' }}
    {%- else %}{{- '<|start|>system\\nYou are a helper.<|end|>\\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first)
        or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|start|>' + message.role + '\\n' + message.content + '<|end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {{- call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant\\n' }}{%- endif %}
"""

QWEN3 = """{%- if tools %}
    {{- '<|start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{{- "\\n</tools><|end|>\\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|start|>system\\n' + messages[0].content + '<|end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, question=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set at = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string
        and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}{%- set ns.question = at %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|start|>' + message.role + '\\n' + content + '<|end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}{%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.question and (loop.last or thoughts) %}
            {{- '<|start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') }}
            {{- '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|start|>' + message.role + '\\n' + content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set about = messages[0]["content"] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set asked = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(i=0) %}
{%- for message in rest %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.i % 2 == 0) %}
            {{- raise_exception("User and assistant must take turns behind the optional system message") }}
        {%- endif %}
        {%- set ns.i = ns.i + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == asked[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and about is defined %}{{- "[INST] " + about + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}{{- out[:-1] }}
            {%- if not call.id is defined or call.id | length != 9 %}
                {{- raise_exception("The id of a call has nine characters") }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {%- set content = message.content.content if message.content.content is defined else message.content %}
        {{- '[RESULTS] {"content": ' + content | string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/RESULTS]' }}
    {%- else %}{{- raise_exception("Roles are user, assistant, system and tool") }}{%- endif %}
{%- endfor %}
"""

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate: user/assistant/user/...') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<|start|>' + role + '\\n' + message['content'] | trim + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>model\\n' }}{% endif %}"
)

PHI = (
    "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
    "{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}"
    "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}"
    "{{'<|assistant|>\\n' + (message['content'] or '') + '<|end|>\\n'}}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|start|>system\nYou help, briefly<|end|>\n' }}{% endif %}"
    "{{'<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)

SMOLLM3 = """{#- defaults -#}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- set own = "" -%}
{%- if messages[0].role == "system" -%}
    {%- set said = messages[0].content -%}
    {%- if "/no_think" in said -%}{%- set mode = "/no_think" -%}
    {%- elif "/think" in said -%}{%- set mode = "/think" -%}{%- endif -%}
    {%- set own = said.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- macro facts() -%}
{{- "## Facts\\n\\nKnowledge: June 2025\\nToday: " ~ strftime_now("%d %B %Y") ~ "\\nMode: " ~ mode ~ "\\n\\n" -}}
{%- endmacro -%}
{{- "<|start|>system\\n" -}}{{- facts() -}}
{%- if own -%}{{- "## Instructions\\n\\n" + own + "\\n\\n" -}}{%- endif -%}
{%- if xml_tools or python_tools or tools -%}
    {{- "### Tools\\n\\n" -}}
    {%- set ns = namespace(listed="<tools>\\n") -%}
    {%- for tool in (xml_tools or tools) -%}{%- set ns.listed = ns.listed ~ (tool | string) ~ "\\n" -%}{%- endfor -%}
    {{- ns.listed ~ "</tools>\\n\\n" -}}
{%- endif -%}
{{- "<|end|>\\n" -}}
{%- for message in messages -%}
    {%- if message.content is string -%}{%- set content = message.content -%}
    {%- elif message.content is iterable -%}
        {%- set content = message.content | selectattr("type", "equalto", "text") | map(attribute="text") | join("") -%}
    {%- else -%}{%- set content = "" -%}{%- endif -%}
    {%- if message.role == "user" -%}{{- "<|start|>user\\n" + content + "<|end|>\\n" -}}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if mode == "/think" -%}{{- "<|start|>assistant\\n" + content.lstrip("\\n") + "<|end|>\\n" -}}
        {%- else -%}{{- "<|start|>assistant\\n<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|end|>\\n" -}}{%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}{{- "<|start|>user\\n" + content + "<|end|>\\n" -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|start|>assistant\\n" -}}{%- if mode == "/no_think" -%}{{- "<think>\\n\\n</think>\\n" -}}{%- endif -%}
{%- endif -%}"""

DEEPSEEK = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(calls=false, results=false, opened=true, about='') %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.about = message['content'] %}"
    "{%- endif %}{%- endfor %}{{bos_token}}{{ns.about}}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{%- set ns.calls = false -%}{{'<|user|>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['tool_calls'] is defined %}{%- set ns.calls = true -%}"
    "{%- for call in message['tool_calls'] %}"
    "{{ '<|assistant|>' if loop.first else '\\n' }}{{'[CALLS]' + call['type'] + '[TOOLS]' + call['function']['name'] + "
    "'\\n```json\\n' + call['function']['arguments'] + '\\n```[/TOOLS]'}}{%- endfor %}{{ '<|end|>' }}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['tool_calls'] is not defined %}"
    "{%- if ns.results %}{{'[/RESULTS]' + message['content'] + '<|end|>'}}{%- set ns.results = false -%}"
    "{%- else %}{% set content = message['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{'<|assistant|>' + content + '<|end|>'}}{%- endif %}{%- endif %}"
    "{%- if message['role'] == 'tool' %}{%- set ns.calls = false -%}"
    "{{ ('\\n' if ns.results else '[RESULTS]') + '[TOOLS]' + message['content'] + '[/TOOLS]' }}"
    "{%- set ns.results = true -%}{%- endif %}"
    "{%- endfor -%}{% if ns.results %}{{'[/RESULTS]'}}{% endif %}"
    "{% if add_generation_prompt and not ns.calls and not ns.results %}{{'<|assistant|><think>\\n'}}{% endif %}"
)

COMMAND_PLAIN = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set about = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set about = false %}{% endif %}"
    "{% if about != false %}{{ '<|turn|><|system|>' + about + '<|end|>' }}{% endif %}"
    "{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('User and assistant must take turns') }}{% endif %}"
    "{{ '<|turn|><|' + message['role'] + '|>' + message['content'].strip() + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|><|assistant|>' }}{% endif %}"
)

COMMAND_TOOLS = """{%- macro kind(spec) -%}
    {%- if spec.type == 'string' -%}str{%- elif spec.type in ('number', 'integer') -%}
    {{ 'int' if spec.type == 'integer' else 'float' }}
    {%- elif spec.type == 'array' -%}List[{{ kind(spec['items']) }}]{%- else -%}Any{%- endif -%}
{%- endmacro -%}
{{ bos_token }}{{ '<|turn|><|system|># Preamble\\n' }}
{%- if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{{ '\\n\\n## Available Tools\\n' }}
{%- for tool in tools %}
    {%- set f = tool.function %}
```python
def {{ f.name }}({% for name, spec in f.parameters.properties.items() %}{{ name }}: {{ kind(spec) }}
{%- if name not in f.parameters.required %} = None{% endif %}{% if not loop.last %}, {% endif %}{% endfor %}) -> List[Dict]:
    \"\"\"{{ f.description }}\"\"\"
    pass
```{{ '\\n' }}
{%- endfor %}
{{- '<|end|>' }}
{%- for message in rest %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or rest[loop.index0 - 1].role != 'tool' %}{{ '<|turn|><|system|><results>' }}{%- endif %}
        {{ '\\n' ~ message.content }}
        {%- if loop.last or rest[loop.index0 + 1].role != 'tool' %}{{ '</results><|end|>' }}{%- endif %}
    {%- elif message.tool_calls %}
        {{- '<|turn|><|assistant|>Action: ```json\\n[' }}
        {%- for call in message.tool_calls %}
            {{- '\\n' }}
            {{- {'name': call.function.name, 'parameters': call.function.arguments} | tojson(indent=4, sort_keys=true) }}
            {%- if not loop.last %},{%- endif %}
        {%- endfor %}
        {{- '\\n]```<|end|>' }}
    {%- else %}{{ '<|turn|><|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|turn|><|assistant|>' }}{%- endif %}"""

COMMAND_RAG = (
    "{{ bos_token }}{% for message in messages %}{{ '<|turn|><|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{{ '<|turn|><|system|><results>' }}{% for document in documents %}"
    "{{ '\\nDocument: ' }}{{ loop.index0 }}{% for key, value in document.items() %}{{ '\\n' + key + ': ' + value | string }}"
    "{% endfor %}{{ '\\n' }}{% endfor %}{{ '</results><|end|>' }}"
    "{% if add_generation_prompt %}{{ '<|turn|><|assistant|>' }}{% endif %}"
)

GRANITE = """{%- if messages[0]['role'] == 'system' %}
    {%- set about = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}
    {%- set about = "Knowledge: April 2024.\\nToday: " + strftime_now('%B %d, %Y') + ".\\nYou are a model." %}
    {%- if tools and documents %}{%- set about = about + " Use tools, and cite documents." %}
    {%- elif tools %}{%- set about = about + " Use tools." %}
    {%- elif documents %}{%- set about = about + " Cite documents." %}{%- endif %}
    {%- if controls and 'length' in controls %}{%- set about = about + " Length: " + controls['length'] %}{%- endif %}
    {%- set rest = messages %}
{%- endif %}
{{- '<|head|>system<|tail|>' + about + '<|turn|>\\n' }}
{%- if tools %}{{- '<|head|>tools<|tail|>' }}{{- tools | tojson(indent=4) }}{{- '<|turn|>\\n' }}{%- endif %}
{%- if documents %}
    {%- for document in documents %}
        {{- '<|head|>document {"id": "' + (document['doc_id'] | default(loop.index) | string) + '"}<|tail|>' }}
        {{- document['text'] + '<|turn|>\\n' }}
    {%- endfor %}
{%- endif %}
{%- for message in rest %}
    {%- if message.tool_calls %}
        {{- '<|head|>assistant<|tail|><tool_call>' }}
        {{- message.tool_calls | map(attribute='function') | list | tojson(ensure_ascii=true, separators=(',', ':')) }}
        {{- '<|turn|>\\n' }}
    {%- else %}
        {{- '<|head|>' + message['role'] + '<|tail|>' }}
        {%- if message['content'] is string %}{{- message['content'] }}
        {%- else %}{%- for part in message['content'] %}{{- part['text'] }}{%- endfor %}{%- endif %}
        {{- '<|turn|>\\n' }}
    {%- endif %}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|head|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|tail|>' }}
    {%- endif %}
{%- endfor %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

# name -> the template, or templates by name
FAMILIES: dict[str, str | dict[str, str]] = {
    "llama 3.1": LLAMA,
    "qwen 2.5": QWEN2,
    "qwen 3": QWEN3,
    "mistral v3": MISTRAL,
    "gemma 2": GEMMA,
    "phi 3": PHI,
    "smollm2": SMOLLM2,
    "smollm3": SMOLLM3,
    "deepseek": DEEPSEEK,
    "command r": {"default": COMMAND_PLAIN, "tool_use": COMMAND_TOOLS, "rag": COMMAND_RAG},
    "granite": GRANITE,
    "zephyr": ZEPHYR,
}
MARKS = [
    "<|head|>", "<|tail|>", "<|turn|>", "<|start|>", "<|system|>", "<|results|>", "[TOOLS]", "[/TOOLS]", "[INST]", "[/INST]",
    "[CALLS]", "[RESULTS]", "[/RESULTS]",
]  # fmt: skip
READ_PARTS = ("smollm3", "granite")  # whose templates read content parts; the others read texts
TEXT_ARGUMENTS = (
    "deepseek",
)  # whose templates read the arguments of a call as text; the others read objects
