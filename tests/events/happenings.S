# A program to which known things happen at known addresses: what `auxtrail record -e EVENT` must show.
#   happenings store    writes `watched` 1000 times at `store`, behind loops of different lengths
#   happenings touch    touches 500 fresh pages at `touch`
#   happenings sleep    sleeps 50 times
#   happenings ask      calls getppid 200 times at `ask`
#   happenings segv     reads address 0x10 at `fault`, behind a loop
#   happenings abort    sends itself SIGABRT at `fatal_call`
        .text
        .globl  main, inner, outer, store, after_store, touch, ask, after_ask, fault, fatal_call, after_fatal_call
main:
        movq    8(%rsi), %rax
        movzbl  (%rax), %ecx
        movzbl  1(%rax), %edx
        cmpb    $'t', %dl
        jne     1f
        cmpb    $'s', %cl
        je      do_store
1:      cmpb    $'t', %cl
        je      do_touch
        cmpb    $'l', %dl
        je      do_sleep
        cmpb    $'e', %dl
        je      do_segv
        cmpb    $'b', %dl
        je      do_abort

do_ask: movl    $200, %ebx
2:      movl    $110, %eax              # getppid
ask:    syscall
after_ask:
        decl    %ebx
        jnz     2b
        jmp     done

do_store:
        movl    $1000, %ebx
3:      movl    %ebx, %ecx
        andl    $31, %ecx
4:      decl    %ecx
inner:  jns     4b
store:  movl    %ebx, watched(%rip)
after_store:
        decl    %ebx
outer:  jnz     3b
        jmp     done

do_touch:
        movl    $9, %eax                # mmap
        xorl    %edi, %edi
        movl    $500 * 4096, %esi
        movl    $3, %edx
        movl    $0x22, %r10d
        movl    $-1, %r8d
        xorl    %r9d, %r9d
        syscall
        movl    $500, %ebx
touch:  movb    $1, (%rax)
        addq    $4096, %rax
        decl    %ebx
        jnz     touch
        jmp     done

do_sleep:
        movl    $50, %ebx
5:      movl    $35, %eax               # nanosleep
        leaq    pause(%rip), %rdi
        xorl    %esi, %esi
        syscall
        decl    %ebx
        jnz     5b
        jmp     done

do_segv:
        movl    $100, %ecx
6:      decl    %ecx
        jnz     6b
        movl    $0x10, %eax
fault:  movl    (%rax), %eax
        ud2

do_abort:
        movl    $39, %eax               # getpid
        syscall
        movl    %eax, %edi
        movl    $6, %esi
        movl    $62, %eax               # kill
fatal_call:
        syscall
after_fatal_call:
        ud2

done:   xorl    %eax, %eax
        ret

        .data
        .balign 8
        .globl  watched
watched: .quad  0
pause:  .quad   0, 200000
        .section .note.GNU-stack,"",@progbits
